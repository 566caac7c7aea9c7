package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server"
	"github.com/caisson-run/caisson/server/servertest"
)

// logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// line returns the one line of an operation, which may come after the answer.
func (l *logBuffer) line(t *testing.T, id string) map[string]any {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		switch found := l.lines(t, id); {
		case len(found) == 1:
			return found[0]
		case len(found) > 1 || time.Now().After(end):
			t.Fatalf("%d lines of %s: %v", len(found), id, found)
		}
	}
}

func (l *logBuffer) lines(t *testing.T, id string) (found []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["request_id"] == id {
			found = append(found, m)
		}
	}
	return found
}

// TestOperations: each call has an ID, which is in the answer and in one line of the log.
func TestOperations(t *testing.T) {
	f := &servertest.Fake{
		OnCreate: func(plan.CreateRequest) (runtime.Info, error) { return runtime.Info{ID: "made"}, nil },
		OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			rio.Started(runtime.Info{ID: "box-id"}, runtime.ExecInfo{ID: "7"})
			return &runtime.Result{}, nil
		},
	}
	var log logBuffer
	socket := serveDeps(t, server.Deps{Sandboxes: f, Execs: f, System: f, Log: slog.New(slog.NewJSONHandler(&log, nil))})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for i, tt := range []struct {
		method, path, body string
		in                 string // what of the answer has the ID
		want               map[string]any
	}{
		{"POST", "/v1/sandboxes", `{}`, ``, map[string]any{"call": "/caisson.v1.SandboxService/Create", "outcome": "ok", "sandbox": "made", "code": nil}},
		{"POST", "/v1/sandboxes/box/execs?attach=true", `{"exec":{"args":["x"]}}`, `"request_id":"ID"`, map[string]any{"call": "/caisson.v1.ExecService/Start", "sandbox": "box-id", "exec": "7"}},
		{"POST", "/v1/sandboxes/box/execs?wait=true", `{"exec":{"args":["x"]}}`, `"request_id":"ID"`, map[string]any{"call": "/caisson.v1.ExecService/Start", "sandbox": "box", "exec": "7"}},
		{"GET", "/v1/sandboxes/gone", ``, `"request_id":"ID"`, map[string]any{"outcome": "error", "code": "SBX-107", "sandbox": "gone"}},
		{"POST", "/v1/sandboxes", `{"sp":1}`, `"request_id":"ID"`, map[string]any{"outcome": "error", "code": "SBX-801"}},
		{"GET", "/v1/nothing", ``, `"request_id":"ID"`, map[string]any{"call": "/v1/nothing", "code": "SBX-801"}},
		{"POST", "/caisson.v1.SandboxService/Create", `{}`, ``, map[string]any{"call": "/caisson.v1.SandboxService/Create", "sandbox": "made"}},
		{"POST", "/caisson.v1.SandboxService/Inspect", `{"ref":"gone"}`, `"requestId":"ID"`, map[string]any{"code": "SBX-107", "sandbox": "gone"}},
		{"POST", "/caisson.v1.SandboxService/Creat", `{}`, ``, map[string]any{"code": "SBX-801", "outcome": "error"}},
	} {
		id := "request-" + string(rune('a'+i))
		res := plain(t, socket, tt.method, tt.path, tt.body, "Content-Type", "application/json", "X-Request-Id", id, "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
		answer := whole(t, res)
		if res.Header.Get("X-Request-Id") != id || !strings.HasPrefix(res.Header.Get("Traceparent"), "00-"+trace+"-") || strings.Contains(res.Header.Get("Traceparent"), "00f067aa0ba902b7") {
			t.Errorf("%s: %v", tt.path, res.Header)
		}
		if !strings.Contains(answer, strings.ReplaceAll(tt.in, "ID", id)) {
			t.Errorf("%s: no %s in %s", tt.path, tt.in, answer)
		}
		line := log.line(t, id)
		for name, want := range tt.want {
			if line[name] != want {
				t.Errorf("%s: %s is %v, want %v, in %v", tt.path, name, line[name], want, line)
			}
		}
		if line["msg"] != "operation" || line["duration"] == nil || line["caller"] == "" {
			t.Errorf("%s: %v", tt.path, line)
		}
	}
}

// TestMadeRequestID: a caller that sends no ID, or none that can be one, gets one.
func TestMadeRequestID(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{})
	seen := map[string]bool{}
	for _, sent := range []string{"", "two words", strings.Repeat("x", 129), "ü"} {
		res := plain(t, socket, "GET", "/v1/version", "", "X-Request-Id", sent, "Traceparent", "00-"+strings.Repeat("0", 32)+"-00f067aa0ba902b7-01")
		id := res.Header.Get("X-Request-Id")
		if len(id) != 32 || seen[id] || res.Header.Get("Traceparent")[3:35] != id {
			t.Errorf("%.20q: %v", sent, res.Header)
		}
		seen[id] = true
	}
}

// TestClientNamesItsCalls: results and errors of the Go client have the ID that it sent.
func TestClientNamesItsCalls(t *testing.T) {
	c := api.Dial(servertest.Listen(t, &servertest.Fake{}))
	defer c.Close()
	ctx := api.WithRequestID(t.Context(), api.RequestID{ID: "mine"})
	result, err := c.Exec(ctx, "box", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: io.Discard})
	if err != nil || result.RequestId != "mine" {
		t.Errorf("%v, %v", result, err)
	}
	_, err = c.Inspect(ctx, &caissonv1.InspectRequest{Ref: "gone"})
	if e := api.Explain(err); e.RequestID != "mine" || e.Code != sbxerr.NotFound {
		t.Errorf("%+v", e)
	}
}

// TestCalled: whoever follows calls hears of each one with its trace. The caller's own
// decides whether it is sampled; without one that is what Traced says.
func TestCalled(t *testing.T) {
	f := &servertest.Fake{}
	calls := make(chan server.Call, 10)
	for _, traced := range []bool{false, true} {
		socket := serveDeps(t, server.Deps{Sandboxes: f, Execs: f, System: f, Traced: traced, Called: func(c server.Call) { calls <- c }})
		const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		for sent, want := range map[string]struct{ flags, parent string }{
			"":                                 {map[bool]string{false: "-00", true: "-01"}[traced], ""},
			"00-" + trace + "-" + span + "-00": {"-00", span},
			"00-" + trace + "-" + span + "-01": {"-01", span},
		} {
			res := plain(t, socket, "GET", "/v1/sandboxes/gone", "", "Traceparent", sent)
			c := <-calls
			if c.Trace != res.Header.Get("Traceparent") || !strings.HasSuffix(c.Trace, want.flags) || c.Parent != want.parent {
				t.Errorf("%q, traced %v: %+v", sent, traced, c)
			}
			if c.Code != sbxerr.NotFound || c.Sandbox != "gone" || !c.Quiet || c.Procedure != "/caisson.v1.SandboxService/Inspect" || c.Begun.IsZero() || c.Took <= 0 {
				t.Errorf("%+v", c)
			}
		}
	}
}
