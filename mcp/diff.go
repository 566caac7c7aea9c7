package mcp

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

type diffInput struct {
	Sandbox  string `json:"sandbox,omitempty" jsonschema:"the sandbox; leave it out where the server has only one"`
	MaxBytes *int64 `json:"max_patch_bytes,omitempty" jsonschema:"show this much of the patch; 30000 by default, 200000 at most"`
}

type diffOutput struct {
	Changes    []change `json:"changes"`
	Patch      string   `json:"patch" jsonschema:"unified, as of git; what is left out is in notes"`
	PatchBytes int      `json:"patch_bytes" jsonschema:"of the whole patch"`
	Truncated  bool     `json:"truncated,omitempty" jsonschema:"there are more changes, or more of the patch"`
	Notes      []string `json:"notes,omitempty"`
}

type change struct {
	Kind    string `json:"kind" jsonschema:"added, modified, deleted or renamed"`
	Path    string `json:"path" jsonschema:"below the workspace"`
	OldPath string `json:"old_path,omitempty"`
	Before  int64  `json:"size_before,omitempty" jsonschema:"bytes"`
	After   int64  `json:"size_after,omitempty" jsonschema:"bytes"`
}

// maxNotes bounds the notes of a patch.
const maxNotes = 50

func (s *Server) addWorkspaceTools() {
	tool(s, &sdk.Tool{Name: "workspace_diff", Annotations: hints("Show what changed", true, false, false),
		Description: "Return what was changed in a copy-on-write workspace, which the user can then apply to the host: a list, and a patch."}, s.workspaceDiff)
}

func (s *Server) workspaceDiff(ctx context.Context, _ *sdk.CallToolRequest, in diffInput) (*sdk.CallToolResult, diffOutput, error) {
	ref, err := s.ref(in.Sandbox)
	if err != nil {
		return nil, diffOutput{}, err
	}
	answer, err := s.client.Diff(ctx, &caissonv1.DiffRequest{Ref: ref, Patch: true})
	if err != nil {
		return nil, diffOutput{}, failure(err)
	}
	out := diffOutput{Changes: []change{}, PatchBytes: len(answer.GetPatch())}
	shown := clamp("max_patch_bytes", in.MaxBytes, defaultShown, 1000, maxShown, &out.Notes)
	out.Patch = strings.ToValidUTF8(string(wholeLines(answer.GetPatch(), int(shown))), "�")
	out.Truncated = answer.GetTruncated() || len(answer.GetChanges()) > maxFiles || out.PatchBytes > int(shown)
	for _, c := range answer.GetChanges()[:min(len(answer.GetChanges()), maxFiles)] {
		out.Changes = append(out.Changes, change{c.GetKind(), c.GetPath(), c.GetOldPath(), c.GetOld().GetSizeBytes(), c.GetNew().GetSizeBytes()})
	}
	for i, n := range answer.GetLeft() {
		if i == maxNotes {
			out.Notes = append(out.Notes, fmt.Sprintf("and %d more are not in the patch", len(answer.GetLeft())-i))
			break
		}
		out.Notes = append(out.Notes, fmt.Sprintf("not in the patch: %q: %s", n.GetPath(), n.GetReason()))
	}
	return text("%s", out.text()), out, nil
}

// wholeLines are the lines at the beginning of text that fit into a number of bytes.
func wholeLines(text []byte, most int) []byte {
	if len(text) <= most {
		return text
	}
	return text[:bytes.LastIndexByte(text[:most], '\n')+1]
}

// text is out as a model reads it.
func (out diffOutput) text() string {
	var b strings.Builder
	for _, c := range out.Changes {
		fmt.Fprintf(&b, "%s %q", c.Kind, c.Path)
		if c.OldPath != "" {
			fmt.Fprintf(&b, ", from %q", c.OldPath)
		}
		fmt.Fprintf(&b, ", %d to %d bytes\n", c.Before, c.After)
	}
	if len(out.Changes) == 0 {
		b.WriteString("nothing was changed\n")
	}
	for _, n := range out.Notes {
		fmt.Fprintf(&b, "[%s]\n", n)
	}
	if out.Patch != "" {
		b.WriteString("\n" + out.Patch)
	}
	if out.Truncated {
		fmt.Fprintf(&b, "[this is a part: the whole patch has %d bytes]\n", out.PatchBytes)
	}
	return b.String()
}
