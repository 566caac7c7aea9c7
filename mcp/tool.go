package mcp

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// tool adds a tool with the schemas of its types. A field that may be absent has one type
// there, without null: some providers of models take no other schemas.
func tool[In, Out any](s *Server, t *sdk.Tool, h sdk.ToolHandlerFor[In, Out]) {
	input := schema[In]()
	t.InputSchema, t.OutputSchema = input, schema[Out]()
	s.inputs[t.Name] = input
	sdk.AddTool(s.mcp, t, h)
}

func schema[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // a type of this package has no schema: no test passes
	}
	withoutNull(s)
	return s
}

func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	withoutNull(s.Items)
	for _, property := range s.Properties {
		withoutNull(property)
	}
}
