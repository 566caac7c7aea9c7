package openapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/openapi"
	"github.com/caisson-run/caisson/api/settings"
)

type document struct {
	OpenAPI    string
	Paths      map[string]map[string]struct{ OperationID string }
	Components struct {
		Schemas map[string]json.RawMessage
	}
}

func read(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(openapi.JSON, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestEveryRouteIsDescribed: the document has the routes of the annotations, and no others.
func TestEveryRouteIsDescribed(t *testing.T) {
	d := read(t)
	described := map[string]bool{}
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, o := range methods {
			described[strings.ToUpper(method)+" "+path] = true
			if o.OperationID == "" || ids[o.OperationID] {
				t.Errorf("%s %s: the operationId %q is not its own", method, path, o.OperationID)
			}
			ids[o.OperationID] = true
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("caisson.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				for _, r := range proto.GetExtension(m.Options(), caissonv1.E_Route).([]*caissonv1.Route) {
					key := r.Method + " " + strings.ReplaceAll(r.Path, "...}", "}")
					if !described[key] {
						t.Errorf("%s is not described", key)
					}
					delete(described, key)
				}
			}
		}
		return true
	})
	if len(described) > 0 || len(ids) < 40 || d.OpenAPI != "3.1.0" {
		t.Errorf("%s: described and not served: %v", d.OpenAPI, described)
	}
}

// TestReferencesLead: every reference is to a schema that is there, and none is unused.
func TestReferencesLead(t *testing.T) {
	d := read(t)
	used := map[string]bool{}
	for _, part := range strings.Split(string(openapi.JSON), `"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		used[name] = true
		if d.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	for name := range d.Components.Schemas {
		if !used[name] {
			t.Errorf("nothing uses the schema %s", name)
		}
	}
}

// TestMethods: OpenAPI knows no other methods.
func TestMethods(t *testing.T) {
	known := map[string]bool{http.MethodGet: true, http.MethodPost: true, http.MethodPut: true, http.MethodPatch: true, http.MethodDelete: true}
	for path, methods := range read(t).Paths {
		for m := range methods {
			if !known[strings.ToUpper(m)] {
				t.Errorf("%s %s", m, path)
			}
		}
	}
}

// TestClosedSetsOfFields: each field of a closed set is in the document, with its values.
func TestClosedSetsOfFields(t *testing.T) {
	d := read(t)
	names := map[string]bool{}
	for _, set := range settings.Sets {
		if names[set.Name] || len(set.Values) < 2 {
			t.Errorf("%s has %q, or comes twice", set.Name, set.Values)
		}
		names[set.Name] = true
		for _, field := range slices.Concat(set.Fields, set.OrEmpty) {
			message, name, _ := strings.Cut(field, ".")
			if message == "ErrorDetail" { // of gRPC
				continue
			}
			values := slices.Clone(set.Values)
			if slices.Contains(set.OrEmpty, field) {
				values = slices.Insert(values, 0, "")
			}
			if d.Components.Schemas[message] == nil { // its fields are those of a query
				data, _ := json.Marshal(values)
				if !strings.Contains(compact(t), `"enum":`+string(data)) {
					t.Errorf("no query has the values %s of %s", data, field)
				}
				continue
			}
			if got := enumOf(t, d.Components.Schemas[message], name); !slices.Equal(got, values) {
				t.Errorf("%s: got %q, want %q", field, got, values)
			}
		}
	}
}

// compact returns the paths of the document without spaces.
func compact(t *testing.T) string {
	var d struct{ Paths json.RawMessage }
	var out bytes.Buffer
	if err := errors.Join(json.Unmarshal(openapi.JSON, &d), json.Compact(&out, d.Paths)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// enumOf returns the values of a field, or of a field in it, in a schema.
func enumOf(t *testing.T, data json.RawMessage, name string) []string {
	type field struct {
		Enum       []string
		Items      struct{ Enum []string }
		Properties map[string]json.RawMessage
	}
	var message, f field
	if err := json.Unmarshal(data, &message); err != nil {
		t.Fatal(err)
	}
	own := message.Properties[name]
	if own == nil { // of the error, which is an object in one
		return enumOf(t, message.Properties["error"], name)
	}
	if err := json.Unmarshal(own, &f); err != nil {
		t.Fatal(err)
	}
	return slices.Concat(f.Enum, f.Items.Enum)
}

// TestExamplesHaveWhatIsRequired: the recorded answers of a daemon have the fields that the
// document says are always there.
func TestExamplesHaveWhatIsRequired(t *testing.T) {
	var d struct {
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(openapi.JSON, &d); err != nil {
		t.Fatal(err)
	}
	answers := map[string]schema{}
	for _, methods := range d.Paths {
		for _, o := range methods {
			answers[o.OperationID] = o.answer()
		}
	}
	data, err := os.ReadFile("examples.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples []struct {
		Call   string
		Answer []string
	}
	if err := json.Unmarshal(data, &examples); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, e := range examples {
		for _, line := range e.Answer {
			var v any
			if json.Unmarshal([]byte(line), &v) == nil {
				checked += answers[e.Call].check(t, d.Components.Schemas, e.Call, v)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d fields were looked for", checked)
	}
}

type operation struct {
	OperationID string
	Responses   map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

// answer is the schema of a call that succeeds.
func (o operation) answer() schema {
	for status, r := range o.Responses {
		for kind, c := range r.Content {
			if status[0] == '2' && kind != "text/event-stream" {
				return c.Schema
			}
		}
	}
	return schema{}
}

type schema struct {
	Ref        string `json:"$ref"`
	OneOf      []schema
	Properties map[string]schema
	Required   []string
	Enum       []string
	Items      *schema
}

// check looks for what s requires of v and returns how many fields those are.
func (s schema) check(t *testing.T, all map[string]schema, path string, v any) (n int) {
	t.Helper()
	if len(s.OneOf) > 0 { // an answer, or an error
		s = s.OneOf[0]
	}
	if s.Ref != "" {
		s = all[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	switch v := v.(type) {
	case string:
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			t.Errorf("%s is %q, none of %q", path, v, s.Enum)
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				t.Errorf("%s has no %s: %v", path, name, v)
			}
			n++
		}
		for name, value := range v {
			n += s.Properties[name].check(t, all, path+"."+name, value)
		}
	case []any:
		if s.Items != nil {
			for _, value := range v {
				n += s.Items.check(t, all, path+"[]", value)
			}
		}
	}
	return n
}
