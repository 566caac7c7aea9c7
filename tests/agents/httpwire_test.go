package agents

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// httpRequest is a request of an MCP client. The token and the session are those of the run.
type httpRequest struct {
	Headers map[string]string
	Session bool // it names the session
	Body    json.RawMessage
}

// httpHeaders are those that the protocol gives a meaning.
var httpHeaders = []string{"Accept", "Content-Type", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"}

const sessionHeader = "Mcp-Session-Id"

// recordedHTTP is the address for a client. With -update it is that of a proxy, which keeps
// the client's messages up to the call that the client cancels.
func recordedHTTP(t *testing.T, name, served string) string {
	t.Helper()
	if !*update {
		return served
	}
	address, err := url.Parse(served)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var session wireSession
	full := false
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = address.Scheme, address.Host, r.In.Host
		body, _ := io.ReadAll(r.In.Body) // what is missing is no message
		r.Out.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		defer mu.Unlock()
		full = full || bytes.Contains(body, []byte("sleep 1002"))
		if r.In.Method != http.MethodPost || full {
			return
		}
		request := httpRequest{Headers: map[string]string{}, Session: r.In.Header.Get(sessionHeader) != "", Body: body}
		for _, h := range httpHeaders {
			if v := r.In.Header.Get(h); v != "" {
				request.Headers[h] = v
			}
		}
		raw, _ := json.Marshal(request) // a body that is no JSON fails the replay
		session.Sent = append(session.Sent, raw)
	}})
	t.Cleanup(func() {
		proxy.Close()
		session.write(t, name)
	})
	return proxy.URL + address.Path
}

// TestRecordedHTTP replays sessions of the official clients over HTTP without them.
func TestRecordedHTTP(t *testing.T) {
	for _, era := range []string{"legacy", "auto"} {
		t.Run(era, func(t *testing.T) {
			served, token := serveHTTP(t, "wire-http")
			compareWire(t, "mcp-http-"+era, func(s wireSession) (list []json.RawMessage) {
				id := ""
				for _, raw := range s.Sent {
					var request httpRequest
					if err := json.Unmarshal(raw, &request); err != nil {
						t.Fatal(err)
					}
					list = append(list, request.post(t, served, token, &id))
				}
				return list
			})
		})
	}
}

// post sends a request, and returns the status and the messages of its answer, but for its
// progress: that depends on the time.
func (r httpRequest) post(t *testing.T, url, token string, session *string) json.RawMessage {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(r.Body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if r.Session {
		req.Header.Set(sessionHeader, *session)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // it was read
	if err != nil {
		t.Fatal(err)
	}
	if id := answer.Header.Get(sessionHeader); id != "" {
		*session = id
	}
	messages := []string{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data:"))
		if strings.HasPrefix(line, "{") && !strings.Contains(line, `"notifications/progress"`) {
			messages = append(messages, string(stable(line)))
		}
	}
	told, err := json.Marshal(arguments{"status": answer.StatusCode, "messages": json.RawMessage("[" + strings.Join(messages, ",") + "]")})
	if err != nil {
		t.Fatal(err)
	}
	return told
}
