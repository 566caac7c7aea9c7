package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// reloadable are the top-level keys whose new values a running daemon takes.
var reloadable = []string{"socket_group", "workspaces", "snapshots", "images", "registries", "secrets", "profiles", "unisolated", "peers"}

// Change is the difference between the configuration of a running daemon and a new one.
type Change struct {
	Config       Config   // the running one, with the new values that it can take
	Changed      []string // keys of these values
	NeedsRestart []string // keys of the other new values
}

// Reload compares c, the configuration of a running daemon, with next. Both are complete.
func (c Config) Reload(next Config) Change {
	change := Change{Config: c}
	to, from := reflect.ValueOf(&change.Config).Elem(), reflect.ValueOf(next)
	for i := range to.NumField() {
		key := yamlKey(to.Type().Field(i))
		if key == "" {
			continue
		}
		keys := differences(to.Field(i), from.Field(i), key)
		if !slices.Contains(reloadable, key) {
			change.NeedsRestart = append(change.NeedsRestart, keys...)
			continue
		}
		change.Changed = append(change.Changed, keys...)
		to.Field(i).Set(from.Field(i))
	}
	return change
}

// differences lists the keys below key whose values differ: those of structs and maps,
// and lists as a whole.
func differences(a, b reflect.Value, key string) []string {
	switch a.Kind() {
	case reflect.Struct:
		var keys []string
		for i := range a.NumField() {
			keys = append(keys, differences(a.Field(i), b.Field(i), key+"."+yamlKey(a.Type().Field(i)))...)
		}
		return keys
	case reflect.Map:
		names := map[string]bool{}
		for _, name := range append(a.MapKeys(), b.MapKeys()...) {
			if x, y := a.MapIndex(name), b.MapIndex(name); !x.IsValid() || !y.IsValid() || !reflect.DeepEqual(x.Interface(), y.Interface()) {
				names[key+"."+name.String()] = true
			}
		}
		return slices.Sorted(maps.Keys(names))
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) || a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return nil
	}
	return []string{key}
}

// yamlKey returns the key of a field, empty where the file has none for it.
func yamlKey(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return key
}
