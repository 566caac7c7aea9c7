package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/caisson-run/caisson/sbxerr"
)

// Schema returns the JSON Schema of the configuration file.
func Schema() ([]byte, error) {
	r := jsonschema.Reflector{RequiredFromJSONSchemaTags: true, ExpandedStruct: true}
	return r.Reflect(&Config{}).MarshalJSON()
}

// unknownKey is how the YAML library reports a key that no field has.
var unknownKey = regexp.MustCompile(`line (\d+): field (\S+) not found in type config\.(\w+)`)

// explainUnknown adds the nearest right key to the YAML library's report.
func explainUnknown(err error) error {
	m := unknownKey.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	msg := fmt.Sprintf("line %s: unknown key %q", m[1], m[2])
	if near := sbxerr.Nearest(m[2], keysOf(m[3])); near != "" {
		msg += fmt.Sprintf(", did you mean %q?", near)
	}
	return errors.New(msg)
}

// keysOf lists the keys of the type with the given name.
func keysOf(typeName string) []string {
	keys := map[string]bool{}
	collectKeys(reflect.TypeFor[Config](), typeName, keys)
	return slices.Sorted(maps.Keys(keys))
}

func collectKeys(t reflect.Type, typeName string, keys map[string]bool) {
	if t.Kind() == reflect.Map || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if t.Name() == typeName {
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			keys[key] = true
		}
		collectKeys(f.Type, typeName, keys)
	}
}
