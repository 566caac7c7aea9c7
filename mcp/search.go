package mcp

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

type searchInput struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"the sandbox; leave it out where the server has only one"`
	Pattern string `json:"pattern" jsonschema:"regular expression in the syntax of RE2, such as \\bfunc\\s+\\w+ or (?i)error; it is looked for in each line"`
	Path    string `json:"path,omitempty" jsonschema:"directory or file; the workspace by default"`
	Glob    string `json:"glob,omitempty" jsonschema:"search in files of this name only, such as *.go"`
	Limit   int    `json:"limit,omitempty" jsonschema:"lines to return; 200 by default, 2000 at most"`
}

type searchOutput struct {
	Matches   string `json:"matches" jsonschema:"a line each: path, line number and text, separated by colons"`
	Lines     int    `json:"lines"`
	Truncated bool   `json:"truncated,omitempty"`
}

// searchScript searches with ripgrep where it is there, else with find and grep, which
// nearly every image has. The grep of busybox knows no binary files, so lines with control
// characters that text does not have are left out. The arguments are the pattern for
// ripgrep, path, glob, the most lines, and the pattern for grep.
const searchScript = `set -f
export LC_ALL=C.UTF-8
if command -v rg >/dev/null 2>&1; then
  rg --no-config --no-heading --line-number --with-filename --color never --max-columns 400 ${3:+--glob "$3"} -e "$1" -- "$2"
elif command -v find >/dev/null 2>&1 && command -v grep >/dev/null 2>&1; then
  find -H "$2" -type d -name .git -prune -o -type f ${3:+-name "$3"} -exec grep -nHIE -e "$5" -- {} + |
    tr "\000" "\001" | LC_ALL=C grep -v "$(printf "[\001-\010\016-\032]")"
else
  echo "the image has neither rg nor find and grep" >&2
fi | head -n "$4" | cut -c 1-500`

func (s *Server) searchFiles(ctx context.Context, _ *sdk.CallToolRequest, in searchInput) (*sdk.CallToolResult, searchOutput, error) {
	if in.Path == "" {
		in.Path = s.workspace
	}
	ref, name, err := s.at(in.Sandbox, in.Path)
	switch {
	case err != nil:
		return nil, searchOutput{}, err
	case in.Pattern == "":
		return nil, searchOutput{}, refused("pattern is empty")
	}
	re2, extended, err := expression(in.Pattern)
	if err != nil {
		return nil, searchOutput{}, refused("pattern: %v", err)
	}
	limit := 200
	if in.Limit > 0 {
		limit = min(in.Limit, 2000)
	}
	if _, err := s.client.Stat(ctx, &caissonv1.StatRequest{Ref: ref, Path: name, Follow: true}); err != nil {
		return nil, searchOutput{}, failure(err)
	}
	spec := &caissonv1.ExecSpec{Args: []string{"/bin/sh", "-c", searchScript, "search", re2, name, in.Glob, fmt.Sprint(limit + 1), extended}}
	answer, err := s.client.Output(ctx, ref, spec, nil)
	if err != nil {
		return nil, searchOutput{}, failure(err)
	}
	if answer.GetResult().GetExitCode() != 0 {
		return nil, searchOutput{}, refused("the search failed: %s", strings.TrimSpace(string(answer.GetStderr())))
	}
	lines := strings.SplitAfter(strings.ToValidUTF8(string(answer.GetStdout()), "�"), "\n")
	lines = lines[:len(lines)-1] // after the last line end
	out := searchOutput{Lines: min(len(lines), limit), Truncated: len(lines) > limit}
	out.Matches = strings.Join(lines[:out.Lines], "")
	shown := out.Matches
	switch {
	case out.Truncated:
		shown += "[there are more: narrow the pattern, the path or the glob]"
	case shown == "":
		shown = "nothing found"
		if said := firstLine(string(answer.GetStderr())); said != "" { // such as a file that cannot be read
			shown += " [" + said + "]"
		}
	}
	return text("%s", shown), out, nil
}
