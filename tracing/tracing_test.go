package tracing_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/tracing"
)

const patience = 20 * time.Second

// receiver takes OTLP by HTTP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans map[string]*otlp.Span // by name
	key   string                // header of the newest request
	fails bool
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{spans: map[string]*otlp.Span{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var m collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &m) != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v, %d bytes", req.URL, err, len(body))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.key = req.Header.Get("Api-Key")
		if r.fails {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, rs := range m.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					r.spans[s.Name] = s
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) setFails(f bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = f
}

func (r *receiver) span(name string) *otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans[name]
}

// text is a log that a test reads while it is written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *text) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *text) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func open(t *testing.T, endpoint string) (*tracing.Tracer, *text) {
	t.Helper()
	log := &text{}
	tr, err := tracing.New(tracing.Options{Endpoint: endpoint, Headers: map[string]string{"api-key": "k"}, Version: "v1", Instance: "i", Host: "h", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return tr, log
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

const (
	traceID = "0123456789abcdef0123456789abcdef"
	caller  = "1111111111111111"
	own     = "2222222222222222"
)

func traceparent(flags string) string { return "00-" + traceID + "-" + own + "-" + flags }

func call(flags, procedure string) tracing.Call {
	return tracing.Call{Procedure: procedure, Begun: time.Unix(100, 0), Took: time.Second, Traceparent: traceparent(flags), Parent: caller, RequestID: "r1"}
}

func created(flags string) *events.Event {
	return &events.Event{Type: events.SandboxCreated, Time: time.Unix(100, 9e8), Trace: traceparent(flags), Data: events.Data{
		SandboxID: "s1", Duration: events.Duration(500 * time.Millisecond), Stages: []events.Stage{{Name: "netns", Duration: events.Duration(200 * time.Millisecond)}, {Name: "container", Duration: events.Duration(300 * time.Millisecond)}},
	}}
}

// A call is a child of the caller's span under the ID that the daemon's log has; what it
// leads to is below it.
func TestSpans(t *testing.T) {
	r := newReceiver(t)
	tr, _ := open(t, r.URL+"/v1/traces")
	tr.Observe(created("01"))
	tr.Called(call("01", "/caisson.v1.SandboxService/Create"))
	failed := call("01", "/caisson.v1.SandboxService/Stop")
	failed.Code, failed.Parent = "SBX-101", ""
	tr.Called(failed)
	tr.Called(call("00", "/caisson.v1.SandboxService/Unsampled"))
	unsampled := created("00")
	unsampled.Data.Stages[0].Name = "unsampled"
	tr.Observe(unsampled)
	tr.Observe(&events.Event{Type: events.ExecEnded, Time: time.Unix(1, 0)}) // of no call
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	root, create := r.span("caisson.v1.SandboxService/Create"), r.span("create")
	if root == nil || create == nil {
		t.Fatalf("spans %v", r.spans)
	}
	if hex.EncodeToString(root.TraceId) != traceID || hex.EncodeToString(root.SpanId) != own || hex.EncodeToString(root.ParentSpanId) != caller {
		t.Errorf("the call is %v", root)
	}
	if root.StartTimeUnixNano != 100e9 || root.EndTimeUnixNano != 101e9 || root.Kind != otlp.Span_SPAN_KIND_SERVER {
		t.Errorf("the call is %v", root)
	}
	if !bytes.Equal(create.ParentSpanId, root.SpanId) || create.StartTimeUnixNano != 100.4e9 || create.EndTimeUnixNano != 100.9e9 {
		t.Errorf("the creation is %v", create)
	}
	first, second := r.span("stage netns"), r.span("stage container")
	if first == nil || second == nil || !bytes.Equal(first.ParentSpanId, create.SpanId) || first.StartTimeUnixNano != 100.4e9 || second.StartTimeUnixNano != 100.6e9 || second.EndTimeUnixNano != 100.9e9 {
		t.Errorf("the stages are %v, %v", first, second)
	}
	stop := r.span("caisson.v1.SandboxService/Stop")
	if stop == nil || stop.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || stop.Status.Message != "SBX-101" || len(stop.ParentSpanId) != 0 {
		t.Errorf("the failure is %v", stop)
	}
	if len(r.spans) != 5 || r.key != "k" {
		t.Errorf("%d spans, header %q: %v", len(r.spans), r.key, r.spans)
	}
}

// A receiver that hangs delays nobody, and what waits is bounded. That it fails is logged
// once.
func TestHangs(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	tr, _ := open(t, s.URL)
	begun := time.Now()
	const n = 100_000
	for range n {
		tr.Called(call("01", "/caisson.v1.ExecService/Start"))
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("%d calls took %v", n, took)
	} else {
		t.Logf("%v for a span", took/n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := tr.Close(ctx); err == nil {
		t.Error("all spans are sent to a receiver that hangs")
	}
}

func TestFailsAndRecovers(t *testing.T) {
	r := newReceiver(t)
	r.setFails(true)
	tr, log := open(t, r.URL+"/v1/traces")
	for range 3 {
		tr.Called(call("01", "/a/Lost"))
		time.Sleep(1100 * time.Millisecond) // a batch each
	}
	await(t, "told", func() bool { return strings.Contains(log.String(), "the receiver fails") })
	r.setFails(false)
	tr.Called(call("01", "/a/Kept"))
	await(t, "recovered", func() bool { return r.span("a/Kept") != nil && strings.Contains(log.String(), "takes spans again") })
	if n := strings.Count(log.String(), "the receiver fails"); n != 1 || r.span("a/Lost") != nil {
		t.Errorf("told %d times: %s", n, log)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
