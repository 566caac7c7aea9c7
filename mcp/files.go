package mcp

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const (
	maxRead  = 200_000  // of a file that is read, in bytes
	maxEdit  = 16 << 20 // of a file that is edited
	maxFiles = 1000     // of a listing
)

type readInput struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"the sandbox; leave it out where the server has only one"`
	Path    string `json:"path" jsonschema:"absolute path, or below the workspace"`
	Offset  int    `json:"offset,omitempty" jsonschema:"the first line to return, from 1"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many lines to return; all by default"`
}

type readOutput struct {
	Path      string `json:"path"`
	Content   string `json:"content"`
	FirstLine int    `json:"first_line"`
	Lines     int    `json:"lines"`
	SizeBytes int64  `json:"size_bytes" jsonschema:"of the whole file"`
	NextLine  int    `json:"next_line,omitempty" jsonschema:"offset to go on with, where the file has more"`
}

type writeInput struct {
	Sandbox string  `json:"sandbox,omitempty" jsonschema:"the sandbox; leave it out where the server has only one"`
	Path    string  `json:"path" jsonschema:"absolute path, or below the workspace; directories are made"`
	Content string  `json:"content" jsonschema:"the whole new content"`
	Mode    *uint32 `json:"mode,omitempty" jsonschema:"permission bits as a decimal number, such as 493 for 0755; those of the old file by default"`
}

type writeOutput struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

type editInput struct {
	Sandbox    string `json:"sandbox,omitempty" jsonschema:"the sandbox; leave it out where the server has only one"`
	Path       string `json:"path" jsonschema:"absolute path, or below the workspace"`
	Old        string `json:"old" jsonschema:"the text to replace, exactly as it is in the file; it must be there once"`
	New        string `json:"new" jsonschema:"the text to put there"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace every occurrence"`
}

type editOutput struct {
	Path         string `json:"path"`
	Replacements int    `json:"replacements"`
}

type filesInput struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"the sandbox; leave it out where the server has only one"`
	Path    string `json:"path,omitempty" jsonschema:"directory; the workspace by default"`
	Depth   uint32 `json:"depth,omitempty" jsonschema:"levels of directories to list; 1 by default"`
}

type filesOutput struct {
	Files     []file `json:"files"`
	Truncated bool   `json:"truncated,omitempty"`
}

type file struct {
	Path      string `json:"path"`
	Type      string `json:"type"`
	SizeBytes int64  `json:"size_bytes"`
}

func (s *Server) addFileTools() {
	tool(s, &sdk.Tool{Name: "read_file", Annotations: hints("Read a file", true, false, false),
		Description: "Return a text file of the sandbox, or some of its lines."}, s.readFile)
	tool(s, &sdk.Tool{Name: "write_file", Annotations: hints("Write a file", false, true, false),
		Description: "Make a file of the sandbox, or replace all of its content, in one step."}, s.writeFile)
	tool(s, &sdk.Tool{Name: "edit_file", Annotations: hints("Edit a file", false, true, false),
		Description: "Replace a text in a file of the sandbox by another."}, s.editFile)
	tool(s, &sdk.Tool{Name: "list_files", Annotations: hints("List files", true, false, false),
		Description: "List a directory of the sandbox."}, s.listFiles)
	tool(s, &sdk.Tool{Name: "search_files", Annotations: hints("Search in files", true, false, false),
		Description: "Search the files below a directory of the sandbox for a regular expression."}, s.searchFiles)
}

// at is the sandbox and the path of a call.
func (s *Server) at(sandbox, name string) (ref, abs string, err error) {
	if ref, err = s.ref(sandbox); err != nil {
		return "", "", err
	}
	if name == "" {
		return "", "", refused("path is missing")
	}
	if strings.ContainsRune(name, 0) {
		return "", "", refused("the path contains a zero byte")
	}
	if !path.IsAbs(name) {
		name = path.Join(s.workspace, name)
	}
	return ref, path.Clean(name), nil
}

func (s *Server) readFile(ctx context.Context, _ *sdk.CallToolRequest, in readInput) (*sdk.CallToolResult, readOutput, error) {
	ref, name, err := s.at(in.Sandbox, in.Path)
	switch {
	case err != nil:
		return nil, readOutput{}, err
	case in.Offset < 0 || in.Limit < 0:
		return nil, readOutput{}, refused("offset and limit count lines, from 1")
	}
	first := max(in.Offset, 1)
	l, info, err := s.readLines(ctx, ref, name, first, in.Limit)
	switch {
	case err != nil:
		return nil, readOutput{}, failure(err)
	case l.seen < first && first > 1:
		return nil, readOutput{}, refused("%s has %d lines, and offset is %d", name, l.seen, in.Offset)
	case !utf8.Valid(l.content):
		return nil, readOutput{}, refused("%s is not a text file (%d bytes): read it with a command, such as od or file", name, info.GetSizeBytes())
	}
	out := readOutput{Path: name, Content: string(l.content), FirstLine: first, Lines: l.count(), SizeBytes: info.GetSizeBytes()}
	shown := out.Content
	if l.more {
		out.NextLine = first + out.Lines
		shown += fmt.Sprintf("[the file has more; go on with offset %d]", out.NextLine)
	}
	return text("%s", shown), out, nil
}

func (s *Server) writeFile(ctx context.Context, _ *sdk.CallToolRequest, in writeInput) (*sdk.CallToolResult, writeOutput, error) {
	ref, name, err := s.at(in.Sandbox, in.Path)
	if err != nil {
		return nil, writeOutput{}, err
	}
	if in.Mode != nil && *in.Mode > 0o777 {
		return nil, writeOutput{}, refused("mode %d is more than 511, which is 0777", *in.Mode)
	}
	info, err := s.client.WriteFile(ctx, &caissonv1.WriteFileHeader{Ref: ref, Path: name, Mode: in.Mode, MakeParents: true}, strings.NewReader(in.Content))
	if err != nil {
		return nil, writeOutput{}, failure(err)
	}
	return text("%s has %d bytes now", name, info.GetSizeBytes()), writeOutput{name, info.GetSizeBytes()}, nil
}

func (s *Server) editFile(ctx context.Context, _ *sdk.CallToolRequest, in editInput) (*sdk.CallToolResult, editOutput, error) {
	ref, name, err := s.at(in.Sandbox, in.Path)
	switch {
	case err != nil:
		return nil, editOutput{}, err
	case in.Old == "":
		return nil, editOutput{}, refused("old is empty: make a new file with write_file")
	case in.Old == in.New:
		return nil, editOutput{}, refused("old and new are the same")
	}
	var content bytes.Buffer
	if _, err := s.client.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: ref, Path: name, Length: maxEdit + 1}, &content); err != nil {
		return nil, editOutput{}, failure(err)
	}
	if content.Len() > maxEdit {
		return nil, editOutput{}, refused("the file has more than %d bytes: edit it with a command", maxEdit)
	}
	n := strings.Count(content.String(), in.Old)
	switch {
	case n == 0:
		return nil, editOutput{}, refused("old is not in %s: read the file, and copy the text with its spaces and line ends", name)
	case n > 1 && !in.ReplaceAll:
		return nil, editOutput{}, refused("old is %d times in %s: give more of the text around it, or set replace_all", n, name)
	}
	changed := strings.ReplaceAll(content.String(), in.Old, in.New)
	if _, err := s.client.WriteFile(ctx, &caissonv1.WriteFileHeader{Ref: ref, Path: name}, strings.NewReader(changed)); err != nil {
		return nil, editOutput{}, failure(err)
	}
	return text("replaced %d in %s", n, name), editOutput{name, n}, nil
}

func (s *Server) listFiles(ctx context.Context, _ *sdk.CallToolRequest, in filesInput) (*sdk.CallToolResult, filesOutput, error) {
	if in.Path == "" {
		in.Path = s.workspace
	}
	ref, name, err := s.at(in.Sandbox, in.Path)
	if err != nil {
		return nil, filesOutput{}, err
	}
	answer, err := s.client.ListDir(ctx, &caissonv1.ListDirRequest{Ref: ref, Path: name, Depth: max(in.Depth, 1)})
	if err != nil {
		return nil, filesOutput{}, failure(err)
	}
	found := answer.GetFiles()
	out := filesOutput{Files: []file{}, Truncated: answer.GetTruncated() || len(found) > maxFiles}
	var b strings.Builder
	for _, f := range found[:min(len(found), maxFiles)] {
		out.Files = append(out.Files, file{f.GetPath(), f.GetType(), f.GetSizeBytes()})
		fmt.Fprintf(&b, "%-9s %10d %s\n", f.GetType(), f.GetSizeBytes(), f.GetPath())
	}
	if out.Truncated {
		b.WriteString("[there are more: list a directory below]\n")
	}
	return text("%s", b.String()), out, nil
}
