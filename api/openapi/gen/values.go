package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api/settings"
)

// setOf is the closed set of the values of f, and whether it may be empty; nil: they are open.
func setOf(f protoreflect.FieldDescriptor) (set *settings.Set, orEmpty bool) {
	return settings.SetOf(string(f.Parent().Name()) + "." + string(f.Name()))
}

// told is the comment of f, before its values if they are a closed set and not all in it.
func told(f protoreflect.FieldDescriptor) string {
	text := comment(f)
	set, _ := setOf(f)
	if set == nil || !slices.ContainsFunc(set.Values, func(v string) bool { return !strings.Contains(text, `"`+v+`"`) }) {
		return text
	}
	values := `"` + strings.Join(set.Values, `", "`) + `"`
	if text == "" {
		return values
	}
	return strings.TrimSuffix(text, ".") + ". One of " + values
}

// writeValues writes a type for each closed set.
func writeValues(w io.Writer, python bool) {
	head, row, quote, or := "// The closed sets of values. Made by api/openapi/gen; do not edit.\n", "export type %s = %s\n", "'", " | "
	if python {
		head, row, quote, or = "\"\"\"The closed sets of values. Made by api/openapi/gen; do not edit.\"\"\"\n\nfrom typing import Literal\n\n", "%s = Literal[%s]\n", `"`, ", "
	}
	fmt.Fprint(w, head)
	for _, set := range settings.Sets {
		fmt.Fprintf(w, row, set.Name, quote+strings.Join(set.Values, quote+or+quote)+quote)
	}
}

// typed is the type of an option whose values are a closed set.
func typed(o option, type_ string) string {
	if o.set == nil {
		return type_
	}
	return strings.Replace(strings.Replace(type_, "string", o.set.Name, 1), "str", o.set.Name, 1)
}

// setNames are the names of the sets that options of groups have, sorted.
func setNames(groups []group) string {
	var names []string
	for _, g := range groups {
		for _, o := range g.options {
			if o.set != nil && !slices.Contains(names, o.set.Name) {
				names = append(names, o.set.Name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
