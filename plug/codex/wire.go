package codex

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// The codes of errors on the wire: those of JSON-RPC, and Codex's own for a missing file.
const (
	codeRequest = -32600 // the request is refused
	codeMethod  = -32601
	codeParams  = -32602
	codeFailed  = -32603
	codeAbsent  = -32004
)

// request is a line from Codex: JSON-RPC without its version. Without an ID it is a
// notification.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// noID is the ID of the answer to a line that has none that can be read.
var noID = json.RawMessage("-1")

type response struct {
	ID     json.RawMessage `json:"id"`
	Result any             `json:"result,omitempty"`
	Error  *wireError      `json:"error,omitempty"`
}

type notification struct {
	Method string `json:"method"`
	Params any    `json:"params"`
}

// wireError is an error as Codex takes it. Its message reaches the model.
type wireError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *wireError) Error() string { return e.Message }

func refuse(code int, format string, args ...any) error {
	return &wireError{code, fmt.Sprintf(format, args...)}
}

// wired is any error in Codex's form.
func wired(err error) *wireError {
	if e := new(wireError); errors.As(err, &e) {
		return e
	}
	code := codeFailed
	switch {
	case errors.Is(err, sbxerr.FileAbsent):
		code = codeAbsent
	case errors.Is(err, sbxerr.FileRights), errors.Is(err, sbxerr.FilePath), errors.Is(err, sbxerr.FileTooBig):
		code = codeRequest
	}
	e := api.Explain(err)
	message := "caisson: " + e.Error()
	if e.Remedy != "" {
		message += "; " + e.Remedy
	}
	return &wireError{code, message}
}

// parse reads a line.
func parse(line []byte) (request, error) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return r, refuse(codeRequest, "the line is no JSON-RPC message: %v", err)
	}
	var number int64
	var text string
	switch {
	case r.ID != nil && json.Unmarshal(r.ID, &number) != nil && json.Unmarshal(r.ID, &text) != nil:
		return r, refuse(codeRequest, "the id of a request is an integer or a string")
	case r.Method == "":
		return r, refuse(codeRequest, "the message has no method")
	}
	return r, nil
}

// pathOf is the path that a URI names.
func pathOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	switch {
	case err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" || u.RawQuery != "" || u.Fragment != "":
		return "", refuse(codeParams, "%.200q is no file URI of this executor", uri)
	case !path.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0) || !utf8.ValidString(u.Path):
		return "", refuse(codeParams, "%.200q names no absolute path in UTF-8", uri)
	}
	return path.Clean(u.Path), nil
}

func uriOf(name string) string { return (&url.URL{Scheme: "file", Path: name}).String() }
