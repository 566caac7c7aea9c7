package main

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api/settings"
)

// schemas are those of all messages, by name.
type schemas map[string]any

// ref is a reference to the schema of m, which is added.
func (s schemas) ref(m protoreflect.MessageDescriptor) object {
	if known := wellKnown(m); known != nil {
		return known
	}
	name := string(m.Name())
	if s[name] == nil {
		s[name] = object{} // a message may hold itself
		s[name] = s.message(m, nil)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// request is a reference to m without the fields of the path, and with the fields of inline
// in its place; nil: there are no others.
func (s schemas) request(m protoreflect.MessageDescriptor, path []string, inline protoreflect.FieldDescriptor) any {
	if m.Fields().Len() == len(path) {
		return nil
	}
	name := string(m.Name())
	if inline == nil {
		s[name] = s.message(m, path)
		return object{"$ref": "#/components/schemas/" + name}
	}
	all := s.message(m, append(path, string(inline.Name())))
	maps.Copy(all["properties"].(object), s.message(inline.Message(), nil)["properties"].(object))
	s[name] = all
	return object{"$ref": "#/components/schemas/" + name}
}

func (s schemas) message(m protoreflect.MessageDescriptor, without []string) object {
	properties := object{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if slices.Contains(without, string(f.Name())) {
			continue
		}
		schema := s.field(f)
		if text := comment(f); text != "" {
			schema["description"] = text
		}
		properties[string(f.Name())] = schema
	}
	out := object{"type": "object", "properties": properties}
	if text := comment(m); text != "" {
		out["description"] = text
	}
	if m.Oneofs().Len() == 1 && !m.Oneofs().Get(0).IsSynthetic() && m.Oneofs().Get(0).Fields().Len() == m.Fields().Len() {
		out["minProperties"], out["maxProperties"] = 1, 1
	}
	return out
}

// field is the schema of a field; the caller owns it.
func (s schemas) field(f protoreflect.FieldDescriptor) object {
	switch {
	case f.IsMap():
		return object{"type": "object", "additionalProperties": s.value(f.MapValue())}
	case f.IsList():
		return object{"type": "array", "items": s.value(f)}
	}
	schema := s.value(f)
	if f.HasOptionalKeyword() && f.Message() == nil {
		schema["x-optional"] = true // absent differs from zero
	}
	return schema
}

func (s schemas) value(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Int32Kind:
		return object{"type": "integer", "format": "int32"}
	case protoreflect.Uint32Kind:
		return object{"type": "integer", "format": "int64", "minimum": 0}
	case protoreflect.Int64Kind:
		return object{"type": []string{"integer", "string"}, "format": "int64"} // a string from 2^53 on
	case protoreflect.Uint64Kind:
		return object{"type": []string{"integer", "string"}, "format": "uint64"}
	case protoreflect.DoubleKind:
		return object{"type": "number", "format": "double"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	case protoreflect.MessageKind:
		return s.ref(f.Message())
	}
	return enum(setOf(f))
}

// enum is the schema of a string, with its values if they are a closed set.
func enum(set *settings.Set, orEmpty bool) object {
	if set == nil {
		return object{"type": "string"}
	}
	values := set.Values
	if orEmpty {
		values = append([]string{""}, values...)
	}
	return object{"type": "string", "enum": values}
}

// wellKnown is the schema of a message that JSON writes in its own form; nil: it is none.
func wellKnown(m protoreflect.MessageDescriptor) object {
	switch m.FullName() {
	case "google.protobuf.Duration":
		return object{"type": "string", "pattern": `^-?[0-9]+(\.[0-9]{1,9})?s$`, "examples": []string{"90s"}}
	case "google.protobuf.Timestamp":
		return object{"type": "string", "format": "date-time"}
	}
	return nil
}

func errorSchema() object {
	text := func(description string) object { return object{"type": "string", "description": description} }
	class := enum(settings.SetOf("Error.class"))
	class["description"] = "of the code"
	return object{
		"type": "object", "required": []string{"error"}, "description": "Why a call failed.",
		"properties": object{"error": object{
			"type": "object", "required": []string{"code", "message", "cause", "remedy", "class", "retryable"},
			"properties": object{
				"code": text("SBX-nnn, which is stable: docs/reference/errors.md"), "class": class,
				"message": text("what was refused or failed"), "cause": text("why, where something below said so"),
				"remedy": text("what to do about it"), "request_id": text("of the call"),
				"retryable": object{"type": "boolean", "description": "the same call may succeed later"},
			},
		}},
	}
}

// comment is what stands before d, or after it on its line, as one text.
func comment(d protoreflect.Descriptor) string {
	l := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := l.LeadingComments
	if strings.TrimSpace(text) == "" {
		text = l.TrailingComments
	}
	return strings.Join(strings.Fields(text), " ")
}

// firstSentence ends with its full stop.
func firstSentence(text string) string {
	before, _, found := strings.Cut(text, ". ")
	if found {
		return before + "."
	}
	return text
}
