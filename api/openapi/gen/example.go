package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// examplesFile is recorded and checked against a daemon by tests/integration.
const examplesFile = "api/openapi/examples.json"

// example is a request of a call and lines of its answer.
type example struct {
	Call, Request string
	Answer        []string
}

func readExamples() (map[string]example, error) {
	data, err := os.ReadFile(examplesFile)
	if err != nil {
		return nil, err
	}
	var list []example
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", examplesFile, err)
	}
	all := map[string]example{}
	for _, e := range list {
		all[e.Call] = e
	}
	return all, nil
}

const (
	exampleLines = 3 // of an answer that is a stream
	mapEntries   = 2
)

// example writes that of m.
func (p *page) example(m protoreflect.MethodDescriptor, first operation) {
	e, ok := p.examples[first.id]
	if !ok {
		return
	}
	fmt.Fprintf(p.w, "\nExample:\n\n```\n%s\n", strings.Replace(e.Request, " -d ", " \\\n  -d ", 1))
	for _, line := range e.Answer[:min(len(e.Answer), exampleLines)] {
		var object map[string]any
		if json.Unmarshal([]byte(line), &object) != nil {
			fmt.Fprintln(p.w, line) // raw bytes
			continue
		}
		fmt.Fprintln(p.w, ordered(m.Output(), object, ""))
	}
	fmt.Fprint(p.w, "```\n")
}

// ordered is object, a message of the kind m, as JSON with its fields in the order that m has,
// without those that are empty.
func ordered(m protoreflect.MessageDescriptor, object map[string]any, indent string) string {
	var lines []string
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, fmt.Sprintf("%s  %q: %s", indent, name, text))
		}
	}
	names := slices.Sorted(maps.Keys(object))
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := string(f.Name())
		if n := slices.Index(names, name); n >= 0 {
			names = slices.Delete(names, n, n+1)
			add(name, valueOf(f, object[name], indent+"  "))
		}
	}
	for _, name := range names { // which JSON has in place of a field
		add(name, compact(object[name]))
	}
	if len(lines) == 0 {
		return "{}"
	}
	return "{\n" + strings.Join(lines, ",\n") + "\n" + indent + "}"
}

// valueOf is a value of f as JSON, empty where the value is.
func valueOf(f protoreflect.FieldDescriptor, v any, indent string) string {
	isMessage := f.Message() != nil && !f.IsMap() && wellKnown(f.Message()) == nil
	switch v := v.(type) {
	case map[string]any:
		if f.IsMap() {
			for _, key := range slices.Sorted(maps.Keys(v))[min(len(v), mapEntries):] {
				delete(v, key)
			}
		}
		if isMessage {
			text := ordered(f.Message(), v, indent)
			if text == "{}" {
				return ""
			}
			return text
		}
	case []any:
		if element, ok := first(v).(map[string]any); ok && isMessage {
			return "[" + ordered(f.Message(), element, indent) + "]"
		}
	}
	return compact(v)
}

func first(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// compact is v as JSON on one line, empty where v is.
func compact(v any) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return ""
	}
	text := strings.TrimSpace(out.String())
	if slices.Contains([]string{`""`, `"0"`, "0", "false", "null", "[]", "{}"}, text) {
		return ""
	}
	return text
}
