package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// synonyms are arguments of other servers' tools, as models know them, with ours.
var synonyms = map[string]string{
	"old_string": "old", "old_str": "old", "old_text": "old", "new_string": "new", "new_str": "new", "new_text": "new",
	"file_path": "path", "filepath": "path", "filename": "path", "file": "path", "directory": "path", "dir": "path",
	"cmd": "command", "script": "command", "code": "command", "cwd": "workdir", "working_directory": "workdir", "timeout": "timeout_ms",
	"run_in_background": "background", "session_id": "session", "shell_id": "id", "bash_id": "id", "input": "stdin", "chars": "stdin",
	"file_text": "content", "contents": "content", "text": "content", "query": "pattern", "regex": "pattern", "sandbox_id": "sandbox",
}

// checkArguments is a middleware that reads arguments as clients and models write them: null
// for an optional one is none, and of a name that no argument has the right one is told.
func (s *Server) checkArguments(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		call, is := req.(*sdk.CallToolRequest)
		if !is || s.inputs[call.Params.Name] == nil {
			return next(ctx, method, req)
		}
		given, err := arguments(s.inputs[call.Params.Name], call.Params.Arguments)
		if err != nil {
			var r sdk.CallToolResult
			r.SetError(err)
			return &r, nil
		}
		call.Params.Arguments = given
		return next(ctx, method, req)
	}
}

// arguments are those that were given, without null for optional ones.
func arguments(input *jsonschema.Schema, given json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(given, &members); len(given) > 0 && err != nil {
		return given, nil // the schema refuses it
	}
	var wrong []string
	all := len(members)
	for name, value := range members {
		switch {
		case input.Properties[name] == nil:
			wrong = append(wrong, unknown(name, input, members))
		case bytes.Equal(value, []byte("null")) && !slices.Contains(input.Required, name):
			delete(members, name)
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return nil, refused("%s", strings.Join(wrong, "; "))
	}
	switch {
	case members == nil: // null
		return nil, nil
	case len(members) == all:
		return given, nil
	}
	return json.Marshal(members)
}

// unknown says which argument was meant by name, or which there are.
func unknown(name string, input *jsonschema.Schema, given map[string]json.RawMessage) string {
	names := slices.Sorted(maps.Keys(input.Properties))
	right := synonyms[strings.ToLower(name)]
	if input.Properties[right] == nil {
		free := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return given[n] != nil })
		right = sbxerr.Nearest(strings.ToLower(name), free)
	}
	if right == "" {
		return fmt.Sprintf("there is no argument %q: this tool has %s", sbxerr.Clip(name), strings.Join(names, ", "))
	}
	return fmt.Sprintf("there is no argument %q: use %q", sbxerr.Clip(name), right)
}
