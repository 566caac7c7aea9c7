package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/mcp"
)

// refusal is what a tool says of arguments, none of which gets as far as a daemon.
func refusal(t *testing.T, tool, arguments string) string {
	t.Helper()
	server, client := sdk.NewInMemoryTransports()
	s := mcp.New(mcp.Options{Sandbox: "box"})
	go func() { _ = s.Run(t.Context(), server) }() // it ends with the client
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	if !r.IsError || len(r.Content) != 1 {
		t.Fatalf("%s %s: %+v", tool, arguments, r)
	}
	return r.Content[0].(*sdk.TextContent).Text
}

// null is as absent where an argument may be, and is refused where it may not.
func TestNullArguments(t *testing.T) {
	for _, tt := range []struct{ tool, arguments, want string }{
		{"bash", `{"command":" ","timeout_ms":null,"env":null,"session":null,"background":null,"sandbox":null}`, "command is empty"},
		{"read_file", `{"path":"","offset":null,"limit":null}`, "path is missing"},
		{"write_file", `{"path":"","content":"","mode":null}`, "path is missing"},
		{"read_file", `{"path":null}`, "null"},
		{"bash", `{"command":"true","env":{"A":null}}`, "null"},
		{"read_file", `null`, `missing properties: ["path"]`},
	} {
		if got := refusal(t, tt.tool, tt.arguments); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.tool, tt.arguments, got, tt.want)
		}
	}
}

// Names that no argument has are told with the right one.
func TestArgumentNames(t *testing.T) {
	for _, tt := range []struct{ tool, arguments, want string }{
		{"edit_file", `{"path":"x","old_string":"a","new_string":"b"}`, `there is no argument "new_string": use "new"; there is no argument "old_string": use "old"`},
		{"edit_file", `{"file_path":"x","old":"a","new":"b"}`, `there is no argument "file_path": use "path"`},
		{"edit_file", `{"path":"x","old":"a","new":"b","replaceAll":true}`, `there is no argument "replaceAll": use "replace_all"`},
		{"bash", `{"cmd":"true"}`, `there is no argument "cmd": use "command"`},
		{"bash", `{"command":"true","timeout":5}`, `there is no argument "timeout": use "timeout_ms"`},
		{"bash", `{"command":"true","run_in_background":true}`, `there is no argument "run_in_background": use "background"`},
		{"read_file", `{"Path":"x"}`, `there is no argument "Path": use "path"`},
		{"read_file", `{"path":"x","encoding":"utf-8"}`, `there is no argument "encoding": this tool has limit, offset, path, sandbox`},
	} {
		if got := refusal(t, tt.tool, tt.arguments); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.tool, tt.arguments, got, tt.want)
		}
	}
}
