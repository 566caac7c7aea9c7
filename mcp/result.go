package mcp

import (
	"errors"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/api"
)

// errRefused is an error in a call's arguments.
type errRefused string

func (e errRefused) Error() string { return string(e) }

func refused(format string, args ...any) error { return errRefused(fmt.Sprintf(format, args...)) }

// failure is err as a model reads it: with its remedy and its code.
func failure(err error) error {
	var r errRefused
	if err == nil || errors.As(err, &r) {
		return err
	}
	e := api.Explain(err)
	text := e.Message
	if e.Cause != "" {
		text += ": " + e.Cause
	}
	if e.Remedy != "" {
		text += ". To mend it: " + e.Remedy
	}
	return fmt.Errorf("%s [%s]", text, e.Code)
}

// text is a result that is text alone.
func text(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// hints are a tool's annotations.
func hints(title string, reads, destroys, open bool) *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{Title: title, ReadOnlyHint: reads, DestructiveHint: &destroys, OpenWorldHint: &open}
}
