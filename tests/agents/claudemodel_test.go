package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// toolCall is what the stand-in for a model asks its agent to do.
type toolCall struct {
	name  string
	input arguments
}

// claudeModel stands in for the model of Claude Code: it asks for one tool after the
// other, and keeps their results.
type claudeModel struct {
	*httptest.Server
	calls []toolCall

	mu      sync.Mutex
	results []string
}

func newClaudeModel(t *testing.T, calls ...toolCall) *claudeModel {
	t.Helper()
	m := &claudeModel{calls: calls, results: make([]string, len(calls))}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

type claudeBlock struct {
	Type    string
	Content json.RawMessage
}

type claudeRequest struct {
	Model    string
	Tools    []any
	Messages []struct{ Content json.RawMessage }
}

// results are those of the tools, in the order of the calls.
func (r claudeRequest) results() (list []string) {
	for _, m := range r.Messages {
		var blocks []claudeBlock
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue // a text
		}
		for _, b := range blocks {
			if b.Type == "tool_result" {
				list = append(list, blockText(b.Content))
			}
		}
	}
	return list
}

// blockText is the text of a content, which is a string or a list of texts.
func blockText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(raw, &parts) // what is neither has no text
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

func (m *claudeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		fmt.Fprint(w, "{}")
		return
	}
	if strings.Contains(r.URL.Path, "count_tokens") {
		fmt.Fprint(w, `{"input_tokens":1}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	var req claudeRequest
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	done := req.results()
	m.mu.Lock()
	if len(done) > 0 && len(done) <= len(m.results) {
		m.results[len(done)-1] = done[len(done)-1]
	}
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	m.answer(w, req, len(done))
}

func (m *claudeModel) answer(w io.Writer, req claudeRequest, done int) {
	event := func(kind string, fields arguments) {
		fields["type"] = kind
		b, _ := json.Marshal(fields) // of plain values
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
	}
	usage := arguments{"input_tokens": 1, "output_tokens": 1}
	event("message_start", arguments{"message": arguments{
		"id": "m", "type": "message", "role": "assistant", "model": req.Model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage,
	}})
	stop := "end_turn"
	if len(req.Tools) > 0 && done < len(m.calls) {
		call := m.calls[done]
		input, _ := json.Marshal(call.input) // of plain values
		event("content_block_start", arguments{"index": 0, "content_block": arguments{"type": "tool_use", "id": fmt.Sprint("t", done), "name": call.name, "input": arguments{}}})
		event("content_block_delta", arguments{"index": 0, "delta": arguments{"type": "input_json_delta", "partial_json": string(input)}})
		stop = "tool_use"
	} else {
		event("content_block_start", arguments{"index": 0, "content_block": arguments{"type": "text", "text": ""}})
		event("content_block_delta", arguments{"index": 0, "delta": arguments{"type": "text_delta", "text": "done"}})
	}
	event("content_block_stop", arguments{"index": 0})
	event("message_delta", arguments{"delta": arguments{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	event("message_stop", arguments{})
}

// result is that of the call of a number, once it has come.
func (m *claudeModel) result(i int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[i]
}
