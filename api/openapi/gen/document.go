package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// object is a JSON object; encoding/json sorts its keys.
type object map[string]any

// documentOf is the OpenAPI document of all annotated calls.
func documentOf(files []protoreflect.FileDescriptor) object {
	s := schemas{}
	paths := object{}
	for _, o := range operationsOf(files) {
		path, _ := paths[o.path()].(object)
		if path == nil {
			path = object{}
			paths[o.path()] = path
		}
		path[strings.ToLower(o.route.Method)] = o.object(s)
	}
	s.require(paths)
	s["Error"] = errorSchema()
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "caisson",
			"version":     "v1",
			"license":     object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
			"description": "The API of caissond on its unix socket. docs/reference/api.md explains it.",
		},
		"servers":    []object{{"url": "http://caisson", "description": "the unix socket; the host is not looked at"}},
		"security":   []object{}, // the daemon knows its callers by the socket's peer credentials
		"paths":      paths,
		"components": object{"schemas": s, "responses": object{"Error": errorResponse()}},
	}
}

// operation is one route of a call.
type operation struct {
	call  protoreflect.MethodDescriptor
	route *caissonv1.Route
	id    string
}

func operationsOf(files []protoreflect.FileDescriptor) []operation {
	var list []operation
	for _, f := range files {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				list = append(list, routesOf(methods.Get(j))...)
			}
		}
	}
	return list
}

func routesOf(m protoreflect.MethodDescriptor) []operation {
	service := strings.TrimSuffix(string(m.Parent().Name()), "Service")
	var list []operation
	for i, r := range proto.GetExtension(m.Options(), caissonv1.E_Route).([]*caissonv1.Route) {
		id := service + string(m.Name())
		if i > 0 { // a further way to the same call
			id += "By" + strings.ToUpper(r.Method[:1]) + strings.ToLower(r.Method[1:]) + lastWord(r.Path)
		}
		list = append(list, operation{m, r, id})
	}
	return list
}

// lastWord is the last literal segment of a path, with a capital.
func lastWord(path string) string {
	segments := strings.Split(path, "/")
	for i := len(segments) - 1; i >= 0; i-- {
		if s := segments[i]; s != "" && s[0] != '{' {
			return strings.ToUpper(s[:1]) + s[1:]
		}
	}
	return ""
}

// path is the route in OpenAPI's form, which cannot say that a field takes all that is left.
func (o operation) path() string { return strings.ReplaceAll(o.route.Path, "...}", "}") }

// fields are the names of the fields in the path.
func (o operation) fields() []string {
	var list []string
	for _, s := range strings.Split(o.path(), "/") {
		if name, found := strings.CutPrefix(s, "{"); found {
			list = append(list, strings.TrimSuffix(name, "}"))
		}
	}
	return list
}

// request is the message that path, query and JSON body fill.
func (o operation) request() protoreflect.MessageDescriptor {
	if o.route.Header != "" {
		return o.call.Input().Fields().ByName(protoreflect.Name(o.route.Header)).Message()
	}
	return o.call.Input()
}

// inline is the field whose fields the body has beside those of the request; nil: there is none.
func (o operation) inline() protoreflect.FieldDescriptor {
	return o.call.Input().Fields().ByName(protoreflect.Name(o.route.Inline))
}

func (o operation) takesJSON() bool {
	return o.route.Body == "" && o.route.Method != "GET" && o.route.Method != "DELETE"
}

func (o operation) object(s schemas) object {
	text := comment(o.call)
	failed := object{"$ref": "#/components/responses/Error"}
	out := object{
		"operationId": o.id,
		"tags":        []string{string(o.call.Parent().Name())},
		"responses":   object{o.status(): o.response(s), "4XX": failed, "5XX": failed},
	}
	if text != "" {
		out["summary"], out["description"] = firstSentence(text), text
	}
	if p := o.parameters(s); len(p) > 0 {
		out["parameters"] = p
	}
	switch {
	case o.route.Body != "":
		out["requestBody"] = object{"required": true, "content": object{"application/octet-stream": object{"schema": object{}}}}
	case o.takesJSON():
		if schema := s.request(o.request(), o.fields(), o.inline()); schema != nil {
			out["requestBody"] = object{"content": object{"application/json": object{"schema": schema}}}
		}
	}
	return out
}

func (o operation) status() string { return fmt.Sprint(cmp.Or(o.route.Status, 200)) }

func (o operation) response(s schemas) object {
	if o.route.Response != "" {
		return object{"description": "the raw bytes", "content": object{"application/octet-stream": object{"schema": object{}}}}
	}
	schema := s.ref(o.call.Output())
	if o.call.IsStreamingServer() {
		schema = object{"oneOf": []object{schema, {"$ref": "#/components/schemas/Error"}}}
		return object{"description": "a stream: one object on each line, or one event each", "content": object{
			"application/x-ndjson": object{"schema": schema}, "text/event-stream": object{"schema": schema},
		}}
	}
	return object{"description": "the answer", "content": object{"application/json": object{"schema": schema}}}
}

func errorResponse() object {
	return object{
		"description": "the call failed",
		"headers":     object{"Caisson-Code": object{"schema": object{"type": "string"}}},
		"content":     object{"application/json": object{"schema": object{"$ref": "#/components/schemas/Error"}}},
	}
}

// parameters are the fields of path and query. Where there is a JSON body the query can
// hold the same fields, which is not told.
func (o operation) parameters(s schemas) []object {
	var list []object
	for _, name := range o.fields() {
		f := o.request().Fields().ByName(protoreflect.Name(name))
		p := object{"name": name, "in": "path", "required": true, "schema": s.field(f)}
		if strings.Contains(o.route.Path, "{"+name+"...}") {
			p["description"] = "all that is left of the path, slashes too"
		}
		list = append(list, p)
	}
	if !o.takesJSON() {
		list = append(list, o.query(s, o.request(), "")...)
		if o.route.Last != "" {
			list = append(list, query(s, o.call.Input().Fields().ByName(protoreflect.Name(o.route.Last)), ""))
		}
	}
	return list
}

func (o operation) query(s schemas, m protoreflect.MessageDescriptor, above string) []object {
	var list []object
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := string(f.Name())
		inner := f.Message() != nil && !f.IsMap() && !f.IsList() && wellKnown(f.Message()) == nil
		switch {
		case above == "" && (slices.Contains(o.fields(), name) || name == o.route.Body || name == o.route.Last):
		case inner:
			list = append(list, o.query(s, f.Message(), above+name+".")...)
		case f.Message() == nil || f.IsMap() || wellKnown(f.Message()) != nil:
			list = append(list, query(s, f, above))
		}
	}
	return list
}

func query(s schemas, f protoreflect.FieldDescriptor, above string) object {
	p := object{"name": above + string(f.Name()), "in": "query", "schema": s.field(f)}
	if f.IsMap() {
		p["schema"] = object{"type": "array", "items": object{"type": "string", "pattern": "^[^=]+="}}
	}
	if text := comment(f); text != "" {
		p["description"] = text
	}
	return p
}
