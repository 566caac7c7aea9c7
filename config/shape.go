package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// misshapen lists what of n, the value of key, a t cannot be read from. about is
// what the schema says of the key.
func misshapen(n *yaml.Node, t reflect.Type, key, about string) []error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" { // as if the key were absent
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return misread(n, t, key, about)
	}
	switch t.Kind() {
	case reflect.Struct:
		return misshapenFields(n, t, key)
	case reflect.Map:
		return misshapenEntries(n, t, key, about)
	case reflect.Slice:
		return misshapenElements(n, t, key, about)
	}
	return misread(n, t, key, about)
}

func misshapenFields(n *yaml.Node, t reflect.Type, key string) []error {
	if n.Kind != yaml.MappingNode {
		return []error{wrongForm(n, key, "keys and their values", "")}
	}
	var errs []error
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		for j := 0; j+1 < len(n.Content); j += 2 {
			if n.Content[j].Value == name {
				errs = append(errs, misshapen(n.Content[j+1], f.Type, below(key, name), descriptionOf(f))...)
			}
		}
	}
	return errs
}

func misshapenEntries(n *yaml.Node, t reflect.Type, key, about string) []error {
	if n.Kind != yaml.MappingNode {
		return []error{wrongForm(n, key, "names and their values", about)}
	}
	var errs []error
	for j := 0; j+1 < len(n.Content); j += 2 {
		errs = append(errs, misshapen(n.Content[j+1], t.Elem(), below(key, n.Content[j].Value), about)...)
	}
	return errs
}

func misshapenElements(n *yaml.Node, t reflect.Type, key, about string) []error {
	if n.Kind != yaml.SequenceNode {
		want := "a list, such as [A, B]"
		if t.Elem().Kind() == reflect.Struct {
			want = "a list, such as [{KEY: VALUE}]"
		}
		return []error{wrongForm(n, key, want, about)}
	}
	var errs []error
	for i, element := range n.Content {
		errs = append(errs, misshapen(element, t.Elem(), fmt.Sprintf("%s[%d]", key, i), about)...)
	}
	return errs
}

// scalars are what the values of a kind are called.
var scalars = map[reflect.Kind]string{
	reflect.String: "one value", reflect.Bool: "true or false", reflect.Int64: "a whole number", reflect.Uint32: "a whole number, not below 0",
}

// misread reports a value that a t is not read from.
func misread(n *yaml.Node, t reflect.Type, key, about string) []error {
	v := reflect.New(t).Interface()
	err := n.Decode(v)
	_, own := v.(yaml.Unmarshaler)
	switch {
	case own && n.Kind != yaml.ScalarNode:
		return []error{wrongForm(n, key, "one value", about)}
	case err == nil:
		return nil
	case own: // it says what is read
		return []error{fmt.Errorf("%s: %w", key, err)}
	}
	return []error{wrongForm(n, key, scalars[t.Kind()], about)}
}

func below(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func wrongForm(n *yaml.Node, key, want, about string) error {
	is := map[yaml.Kind]string{yaml.MappingNode: "keys and values", yaml.SequenceNode: "a list"}[n.Kind]
	if is == "" {
		is = fmt.Sprintf("%q", sbxerr.Clip(n.Value))
	}
	if key == "" {
		key = "the file"
	}
	if about != "" {
		want += " (" + about + ")"
	}
	return fmt.Errorf("line %d: %s: is %s, must be %s", n.Line, key, is, want)
}

// description is that of a field in the schema; a comma in it is escaped.
var description = regexp.MustCompile(`description=((?:\\,|[^,])*)`)

func descriptionOf(f reflect.StructField) string {
	m := description.FindStringSubmatch(f.Tag.Get("jsonschema"))
	if m == nil {
		return ""
	}
	return strings.ReplaceAll(m[1], `\,`, ",")
}
