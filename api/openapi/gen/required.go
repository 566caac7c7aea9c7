package main

import (
	"maps"
	"slices"
	"strings"
)

// always are the messages that every answer has.
var always = []string{"Result.usage", "Result.sandbox"}

// require marks the fields that every answer has. Other messages, times and optional fields may
// be absent. Messages that a request uses are left out, because a request may omit any field.
// Output and events are left out, because their JSON omits empty fields.
func (s schemas) require(paths object) {
	spared := map[string]bool{"Output": true, "Error": true}
	for _, path := range paths {
		for _, o := range path.(object) {
			o := o.(object)
			s.reach(o["requestBody"], spared)
			if o["operationId"] == "EventWatch" {
				s.reach(o["responses"], spared)
			}
		}
	}
	for name, schema := range s {
		schema := schema.(object)
		if spared[name] || schema["maxProperties"] != nil {
			continue
		}
		properties := schema["properties"].(object)
		required := slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(field string) bool {
			p := properties[field].(object)
			if slices.Contains(always, name+"."+field) {
				return false
			}
			return p["$ref"] != nil || p["format"] == "date-time" || p["pattern"] != nil || p["x-optional"] != nil
		})
		if len(required) > 0 {
			schema["required"] = required
		}
	}
}

// reach adds the names of all schemas that v refers to.
func (s schemas) reach(v any, names map[string]bool) {
	switch v := v.(type) {
	case object:
		for key, value := range v {
			if ref, ok := value.(string); ok && key == "$ref" {
				name := ref[strings.LastIndex(ref, "/")+1:]
				if !names[name] {
					names[name] = true
					s.reach(s[name], names)
				}
			}
			s.reach(value, names)
		}
	case []object:
		for _, value := range v {
			s.reach(value, names)
		}
	}
}
