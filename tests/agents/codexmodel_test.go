package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
)

// codexModel stands in for the model of Codex: it asks for one tool after the other, and
// keeps their results. The input of a call is its arguments, or a patch.
type codexModel struct {
	*httptest.Server
	calls []codexCall

	mu      sync.Mutex
	results []string
}

// codexCall is one call of a tool. With a patch it is apply_patch.
type codexCall struct {
	name  string
	args  arguments
	patch string
	input string // of the command before, which runs on: this is write_stdin
}

// sessionID is how Codex names a command that runs on.
var sessionID = regexp.MustCompile(`session ID (\d+)`)

func newCodexModel(t *testing.T, calls ...codexCall) *codexModel {
	t.Helper()
	m := &codexModel{calls: calls, results: make([]string, len(calls))}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *codexModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/responses" {
		http.NotFound(w, r)
		return
	}
	var req struct {
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	done := 0
	m.mu.Lock()
	for _, item := range req.Input {
		if (item.Type == "function_call_output" || item.Type == "custom_tool_call_output") && done < len(m.results) {
			m.results[done] = blockText(item.Output)
			done++
		}
	}
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	m.answer(w, done)
}

func (m *codexModel) answer(w http.ResponseWriter, done int) {
	event := func(kind string, fields arguments) {
		fields["type"] = kind
		b, _ := json.Marshal(fields) // of plain values
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
	}
	id := fmt.Sprint("c", done)
	item := arguments{"type": "message", "role": "assistant", "id": id, "content": []any{arguments{"type": "output_text", "text": "done"}}}
	if done < len(m.calls) {
		call := m.calls[done]
		if call.input != "" {
			call.name = "write_stdin"
			if id := sessionID.FindStringSubmatch(m.result(done - 1)); id != nil {
				call.args = arguments{"session_id": json.Number(id[1]), "chars": call.input, "yield_time_ms": 3000}
			}
		}
		args, _ := json.Marshal(call.args) // of plain values
		item = arguments{"type": "function_call", "id": id, "call_id": id, "name": call.name, "arguments": string(args)}
		if call.patch != "" {
			item = arguments{"type": "custom_tool_call", "id": id, "call_id": id, "name": "apply_patch", "input": call.patch}
		}
	}
	event("response.created", arguments{"response": arguments{"id": id}})
	event("response.output_item.done", arguments{"item": item})
	event("response.completed", arguments{"response": arguments{"id": id, "usage": arguments{
		"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2,
	}}})
}

// result is that of the call of a number, once it has come.
func (m *codexModel) result(i int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[i]
}
