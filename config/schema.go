package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Schema returns the JSON Schema of the configuration file.
func Schema() ([]byte, error) {
	r := jsonschema.Reflector{RequiredFromJSONSchemaTags: true, ExpandedStruct: true}
	return r.Reflect(&Config{}).MarshalJSON()
}

// unknownKey is how the YAML library reports a key that no field has.
var unknownKey = regexp.MustCompile(`line (\d+): field (\S+) not found in type config\.(\w+)`)

// explain says of what key of data the YAML library reported err: it names none
// where a value has the wrong form.
func explain(err error, data []byte) error {
	if m := unknownKey.FindStringSubmatch(err.Error()); m != nil {
		return explainUnknown(m)
	}
	var file yaml.Node
	if yaml.Unmarshal(data, &file) != nil || len(file.Content) == 0 { // it is no YAML
		return explainSyntax(err, data)
	}
	if wrong := misshapen(file.Content[0], reflect.TypeFor[Config](), "", ""); len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	return err
}

// syntax is how the YAML library reports text that is no YAML. Those of its reports that begin
// like this one count lines from 0, all others from 1, and neither names the first line.
var syntax = regexp.MustCompile(`^yaml: (?:line (\d+): )?(did not find expected (?:',' or|'-' indicator|<document start>|key$|node content))?`)

// explainSyntax corrects the line in the report about data. The end of data is in its last line.
func explainSyntax(err error, data []byte) error {
	m := syntax.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	line, _ := strconv.Atoi(m[1]) // 0 where there is none
	if m[2] != "" || line == 0 {
		line++
	}
	line = min(line, bytes.Count(bytes.TrimRight(data, "\n"), []byte("\n"))+1)
	what, found := strings.CutPrefix(err.Error(), "yaml: line "+m[1]+": ")
	if !found {
		what = strings.TrimPrefix(what, "yaml: ")
	}
	return fmt.Errorf("line %d: no YAML: %s", line, what)
}

// explainUnknown adds the nearest right key to the YAML library's report.
func explainUnknown(m []string) error {
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
