package integration

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestTracing: the calls of a caller with a trace are below its span, and the stages of a
// creation below that of its call. A receiver that is gone delays nothing and is told once.
func TestTracing(t *testing.T) {
	t.Parallel()
	const traceID, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	var mu sync.Mutex
	var spans []*otlp.Span
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &m) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "opensesame" {
			t.Errorf("%s %v: %v, %d bytes", r.URL, r.Header, err, len(body))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range m.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				spans = append(spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(s.Close)
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("X-Key: opensesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, fmt.Sprintf("warm: 0\ntelemetry: {otlp: {endpoint: %s, headers_file: %s}}\n", s.URL, headers))
	traced := func(args ...string) {
		t.Helper()
		cmd := d.Command(t.Context(), args...)
		cmd.Env = append(cmd.Env, "TRACEPARENT=00-"+traceID+"-"+caller+"-01")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	traced("create", "--name", "one")
	traced("exec", "one", "--", "true")
	traced("stop", "one")
	traced("rm", "one")
	find := func(name string) *otlp.Span {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range spans {
			if s.Name == name && hex.EncodeToString(s.TraceId) == traceID {
				return s
			}
		}
		return nil
	}
	tree := map[string]string{
		"caisson.v1.SandboxService/Create": "", "create": "caisson.v1.SandboxService/Create", "stage container": "create", "stage rootfs": "create",
		"caisson.v1.ExecService/Start": "", "exec": "caisson.v1.ExecService/Start", "caisson.v1.SandboxService/Stop": "", "caisson.v1.SandboxService/Remove": "", "remove": "caisson.v1.SandboxService/Remove",
	}
	for end := time.Now().Add(20 * time.Second); find("caisson.v1.SandboxService/Remove") == nil || find("remove") == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("spans %v", spans)
		}
	}
	for name, parent := range tree {
		span, want := find(name), caller
		if span == nil {
			t.Errorf("no span %q", name)
			continue
		}
		if parent != "" && find(parent) != nil {
			want = hex.EncodeToString(find(parent).SpanId)
		}
		if got := hex.EncodeToString(span.ParentSpanId); got != want || span.EndTimeUnixNano < span.StartTimeUnixNano {
			t.Errorf("%q is below %s, want %q, %s", name, got, parent, want)
		}
	}
	if root := find("caisson.v1.SandboxService/Create"); root != nil && !strings.Contains(d.Log(), traceID+"-"+hex.EncodeToString(root.SpanId)) {
		t.Error("the log does not name the span of the call")
	}
	s.Close()
	for range 3 {
		d.Run(t, "run", "--", "true")
		time.Sleep(1500 * time.Millisecond) // a batch each
	}
	for end := time.Now().Add(20 * time.Second); !strings.Contains(d.Log(), "spans are dropped"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing tells that the receiver is gone")
		}
	}
	if n := strings.Count(d.Log(), "spans are dropped"); n != 1 || strings.Contains(d.Log(), "opensesame") {
		t.Errorf("told %d times: %s", n, d.Log())
	}
}
