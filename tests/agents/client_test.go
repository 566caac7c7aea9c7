package agents

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/tests/harness"
)

// client is an MCP client with a server of its own.
type client struct {
	*sdk.ClientSession
	server *exec.Cmd
}

// connect starts caisson mcp with the arguments, as an agent does.
func connect(t *testing.T, d *harness.Daemon, args ...string) client {
	t.Helper()
	server := d.Command(context.WithoutCancel(t.Context()), append([]string{"mcp"}, args...)...)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: server}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // of a server that a test killed
	return client{session, server}
}

// output is what bash returns.
type output struct {
	Status     string
	ExitCode   *int `json:"exit_code"`
	Stdout     string
	Stderr     string
	Truncated  bool
	OutputPath string `json:"output_path"`
	ID         string
	Notes      []string
	Bytes      int64 `json:"stdout_bytes"`
}

type arguments = map[string]any

// call calls a tool; a protocol error fails the test.
func (c client) call(t *testing.T, tool string, args arguments) (*sdk.CallToolResult, string) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	return r, textOf(r)
}

func textOf(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, part := range r.Content {
		if text, ok := part.(*sdk.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// bash runs a script, and fails the test where the tool fails.
func (c client) bash(t *testing.T, script string, more ...arguments) output {
	t.Helper()
	args := arguments{"command": script}
	for _, m := range more {
		for k, v := range m {
			args[k] = v
		}
	}
	return c.ok(t, "bash", args)
}

func (c client) ok(t *testing.T, tool string, args arguments) (o output) {
	t.Helper()
	r, text := c.call(t, tool, args)
	if r.IsError {
		t.Fatalf("%s %v: %s", tool, args, text)
	}
	decode(t, r, &o)
	return o
}

func decode(t *testing.T, r *sdk.CallToolResult, into any) {
	t.Helper()
	b, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fails calls a tool that must fail with a text that has want in it.
func (c client) fails(t *testing.T, want, tool string, args arguments) {
	t.Helper()
	if r, text := c.call(t, tool, args); !r.IsError || !strings.Contains(text, want) {
		t.Errorf("%s %v: failed %v with %q, want %q", tool, args, r.IsError, text, want)
	}
}
