package strictjson

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// misfit names the first value of a JSON text that does not fit into a message of type d:
// of the wrong type, or no duration or time. The library calls most of them syntax errors,
// and does not say where they are. Empty: the text is not JSON, or fails for another reason.
func misfit(data []byte, d protoreflect.MessageDescriptor) string {
	var value any
	if json.Unmarshal(data, &value) != nil {
		return ""
	}
	return misfitOfMessage("", value, d)
}

// misfitOfMessage is misfit of the value at path; the body itself has none.
func misfitOfMessage(path string, value any, d protoreflect.MessageDescriptor) string {
	switch d.FullName() {
	case "google.protobuf.Duration":
		return misfitOfText(path, value, new(durationpb.Duration), `a duration in seconds such as "90s"`)
	case "google.protobuf.Timestamp":
		return misfitOfText(path, value, new(timestamppb.Timestamp), `a time such as "2026-01-02T15:04:05Z"`)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return wants(path, value, "an object"+fieldsOf(path, d))
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		for _, name := range slices.Compact([]string{string(f.Name()), f.JSONName()}) {
			if text := misfitOfField(strings.TrimPrefix(path+"."+name, "."), object[name], f); text != "" {
				return text
			}
		}
	}
	return ""
}

// misfitOfField is misfit of the value of f; null is as good as absent.
func misfitOfField(path string, value any, f protoreflect.FieldDescriptor) string {
	switch {
	case value == nil:
		return ""
	case f.IsMap():
		object, ok := value.(map[string]any)
		if !ok {
			return wants(path, value, `an object such as {"NAME": "VALUE"}`)
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if text := misfitOfEntry(fmt.Sprintf("%s[%q]", path, key), object[key], f.MapValue()); text != "" {
				return text
			}
		}
		return ""
	case f.IsList():
		list, ok := value.([]any)
		if !ok {
			return wants(path, value, "a list")
		}
		for i, entry := range list {
			if text := misfitOfEntry(fmt.Sprintf("%s[%d]", path, i), entry, f); text != "" {
				return text
			}
		}
		return ""
	}
	return misfitOfEntry(path, value, f)
}

// misfitOfEntry is misfit of one value of the kind of f. The library names the field of a
// number that does not fit.
func misfitOfEntry(path string, value any, f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return misfitOfMessage(path, value, f.Message())
	case protoreflect.StringKind:
		if _, ok := value.(string); !ok {
			return wants(path, value, "a string")
		}
	case protoreflect.BoolKind:
		if _, ok := value.(bool); !ok {
			return wants(path, value, "true or false")
		}
	}
	return ""
}

// misfitOfText is misfit of a value that is the text of m.
func misfitOfText(path string, value any, m protoreflect.ProtoMessage, form string) string {
	text, ok := value.(string)
	if !ok {
		return wants(path, value, form)
	}
	quoted, err := json.Marshal(text)
	if err == nil && protojson.Unmarshal(quoted, m) == nil {
		return ""
	}
	return fmt.Sprintf("%s is %q: give %s", path, text, form)
}

// wants says which JSON type the value at path has, and what to give in its place.
func wants(path string, value any, form string) string {
	kind := "an object"
	switch value.(type) {
	case nil:
		kind = "null"
	case bool:
		kind = "a boolean"
	case float64:
		kind = "a number"
	case string:
		kind = "a string"
	case []any:
		kind = "a list"
	}
	if path == "" {
		path = "the body"
	}
	return fmt.Sprintf("%s is %s: give %s", path, kind, form)
}

// fieldsOf names the fields of a small message.
func fieldsOf(path string, d protoreflect.MessageDescriptor) string {
	n := d.Fields().Len()
	if path == "" || n > 4 {
		return ""
	}
	names := make([]string, n)
	for i := range n {
		names[i] = string(d.Fields().Get(i).Name())
	}
	return " with " + strings.Join(names, ", ")
}
