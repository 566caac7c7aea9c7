package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/mcp"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/patches"
	"github.com/caisson-run/caisson/server/servertest"
)

// diffed is what the tool workspace_diff answers of a workspace.
func diffed(t *testing.T, list []changes.Change, p patches.Patch, arguments map[string]any) (text string, out struct {
	Changes    []struct{ Kind, Path string }
	Patch      string
	PatchBytes int `json:"patch_bytes"`
	Truncated  bool
	Notes      []string
}) {
	t.Helper()
	f := &servertest.Fake{Details: map[string]*runtime.Detail{"box": {}}, Changes: list, OfChanges: p}
	c := api.New(api.Options{Socket: servertest.Listen(t, f)})
	t.Cleanup(c.Close)
	server, client := sdk.NewInMemoryTransports()
	s := mcp.New(mcp.Options{Client: c, Sandbox: "box"})
	go func() { _ = s.Run(t.Context(), server) }() // it ends with the client
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "workspace_diff", Arguments: arguments})
	if err != nil || r.IsError {
		t.Fatalf("%v %+v", err, r)
	}
	data, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.Content[0].(*sdk.TextContent).Text, out
}

// A model gets a list and a patch, and is told what is not in it.
func TestWorkspaceDiff(t *testing.T) {
	const patch = "diff --git a/x b/x\n-a\n+\xff\n"
	left := []patches.Note{{Path: ".envrc", Reason: "control file"}}
	text, out := diffed(t, []changes.Change{{Kind: changes.Modified, Path: "x", Old: changes.State{Type: "file", Size: 2}, New: changes.State{Type: "file", Size: 3}}}, patches.Patch{Text: []byte(patch), Left: left}, nil)
	want := "modified \"x\", 2 to 3 bytes\n[not in the patch: \".envrc\": control file]\n\ndiff --git a/x b/x\n-a\n+�\n"
	if text != want || out.Patch != "diff --git a/x b/x\n-a\n+�\n" || out.PatchBytes != len(patch) || out.Truncated || len(out.Changes) != 1 || len(out.Notes) != 1 {
		t.Errorf("%q, %+v", text, out)
	}
	if text, _ := diffed(t, nil, patches.Patch{}, nil); text != "nothing was changed\n" {
		t.Errorf("%q", text)
	}
}

// The answer is bounded, whatever a sandbox wrote.
func TestWorkspaceDiffBounded(t *testing.T) {
	list, left := make([]changes.Change, 5000), make([]patches.Note, 5000)
	for i := range list {
		list[i], left[i] = changes.Change{Kind: changes.Added, Path: "x"}, patches.Note{Path: "y", Reason: "too large to show"}
	}
	whole := patches.Patch{Text: []byte(strings.Repeat("+0123456789\n", 100_000)), Left: left}
	for _, tt := range []struct {
		ask  any
		most int
	}{{nil, 30_000}, {5000, 5000}, {10_000_000, 200_000}} {
		text, out := diffed(t, list, whole, map[string]any{"max_patch_bytes": tt.ask})
		if len(out.Patch) > tt.most || len(out.Patch) < tt.most-12 || !strings.HasSuffix(out.Patch, "\n") || out.PatchBytes != 1_200_000 || !out.Truncated || len(out.Changes) != 1000 || len(out.Notes) > 52 {
			t.Errorf("%v: %d bytes of %d, %d changes, %d notes", tt.ask, len(out.Patch), out.PatchBytes, len(out.Changes), len(out.Notes))
		}
		if !strings.HasSuffix(text, "[this is a part: the whole patch has 1200000 bytes]\n") {
			t.Errorf("%v: %q", tt.ask, text[len(text)-100:])
		}
	}
}
