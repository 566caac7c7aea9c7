package metrics_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/tokens"
	"github.com/caisson-run/caisson/metrics"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/pool"
	"github.com/caisson-run/caisson/runtime/spend"
)

// used returns metrics that have seen one event of each type.
func used(state metrics.State) *metrics.Metrics {
	m := metrics.New(metrics.Build{Version: "v1", Commit: "c", GoVersion: "go"}, func(context.Context) metrics.State { return state })
	code := 3
	for _, t := range events.Types() {
		m.Observe(&events.Event{Type: t, Data: events.Data{
			ExitCode: &code, Reason: "exited", Duration: events.Duration(20 * time.Millisecond), Limit: "memory", Code: "SBX-701", Kind: "connection", Verdict: "refused", Skipped: 4,
			Bytes: 7, SentBytes: 5, StdoutBytes: 9, Stages: []events.Stage{{Name: "netns", Duration: events.Duration(2 * time.Millisecond)}},
		}})
	}
	m.Called("/caisson.v1.SandboxService/Create", "", time.Millisecond)
	return m
}

var busy = metrics.State{
	Counts: runtime.Counts{
		Sandboxes: map[runtime.State]int{runtime.StateRunning: 2}, Pooled: 4, Orphaned: 1, Skipped: 1, Execs: 3, Queued: 5,
		Pools:  []pool.Stats{{Profile: "strict", Image: "base", Ready: 4, Target: 8, Hits: 6, Misses: 2, Failures: 1}},
		Routes: map[string]spend.Amount{"gpt": {Requests: 3, Tokens: tokens.Count{Input: 100, Cached: 7, Output: 20}, Micros: 1_500_000}},
	},
	AuditWritten: 10, AuditFailed: 1, AuditLag: map[string]uint64{"journald /run/j": 7},
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(text)
}

func TestScrape(t *testing.T) {
	m := used(busy)
	_, text := get(t, m.Handler(func(context.Context) error { return nil }), "/metrics")
	for _, line := range []string{
		`caisson_build_info{commit="c",go_version="go",version="v1"} 1`,
		`caisson_sandboxes{state="running"} 2`, `caisson_sandboxes{state="pooled"} 4`, `caisson_sandboxes{state="paused"} 0`,
		`caisson_route_requests_total{route="gpt"} 3`, `caisson_route_tokens_total{direction="in",route="gpt"} 100`, `caisson_route_tokens_total{direction="out",route="gpt"} 20`, `caisson_route_cost_total{route="gpt"} 1.5`,
		`caisson_orphaned_sandboxes 1`, `caisson_execs_running 3`, `caisson_create_queue_length 5`, `caisson_engine_up 1`,
		`caisson_pool_hits_total{image="base",profile="strict"} 6`, `caisson_audit_records_total 10`, `caisson_audit_export_lag_records{receiver="journald /run/j"} 7`,
		`caisson_exec_duration_seconds_count{exit="failure",reason="exited"} 1`, `caisson_limit_hits_total{limit="memory"} 1`, `caisson_limit_hits_total{limit="pids"} 0`,
		`caisson_refused_calls_total{code="SBX-701"} 5`, `caisson_network_attempts_total{kind="connection",verdict="refused"} 5`,
		`caisson_network_bytes_total{direction="sent"} 5`, `caisson_file_bytes_total{direction="in"} 7`, `caisson_output_bytes_total{stream="stdout"} 9`,
		`caisson_sandbox_create_duration_seconds_count{source="new"} 1`, `caisson_sandbox_stage_duration_seconds_bucket{stage="netns",le="0.0025"} 1`,
		`caisson_sandbox_removal_duration_seconds_sum 0.02`, `caisson_call_duration_seconds_count{call="Create",outcome="ok"} 1`,
		`caisson_events_total{type="exec.ended"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestHealth(t *testing.T) {
	var why error
	h := used(busy).Handler(func(context.Context) error { return why })
	if status, text := get(t, h, "/readyz"); status != http.StatusOK || text != "ok\n" {
		t.Errorf("%d %q", status, text)
	}
	down := metrics.State{Engine: sbxerr.New(sbxerr.EngineDown, "test", "gone"), AuditBlocks: true}
	why = down.Ready()
	if status, text := get(t, h, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, "gone") || !strings.Contains(text, "audit") {
		t.Errorf("%d %q", status, text)
	}
	if status, _ := get(t, h, "/healthz"); status != http.StatusOK {
		t.Errorf("a daemon without an engine is not healthy: %d", status)
	}
	if status, _ := get(t, h, "/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("something else is served: %d", status)
	}
	if err := busy.Ready(); err != nil {
		t.Error(err)
	}
}

// Callers cannot make series: neither an unknown path nor a name is a label.
func TestLabelsAreBounded(t *testing.T) {
	m := used(busy)
	series := func() (n int) {
		families, err := m.Gather().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.Metric)
		}
		return n
	}
	m.Called("", sbxerr.APIUsage, time.Millisecond)
	before := series()
	for i := range 100 {
		name := strings.Repeat("x", i)
		m.Called("", sbxerr.APIUsage, time.Millisecond)
		m.Observe(&events.Event{Type: events.ExecStarted, Data: events.Data{Name: name, SandboxID: name, Caller: name, Image: name, Host: name}})
	}
	if after := series(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

var metricName = regexp.MustCompile(`\bcaisson_[a-z_]+`)

// The metrics and labels of the dashboard and of the alerts exist.
func TestDashboardAndAlerts(t *testing.T) {
	families, err := used(busy).Gather().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, f := range families {
		known = append(known, f.GetName(), f.GetName()+"_bucket", f.GetName()+"_count", f.GetName()+"_sum")
	}
	expressions := append(dashboard(t), alerts(t)...)
	if len(expressions) < 30 {
		t.Fatalf("only %d expressions", len(expressions))
	}
	shown := map[string]bool{}
	for _, e := range expressions {
		names := metricName.FindAllString(e, -1)
		if len(names) == 0 {
			t.Errorf("%q is about no metric", e)
		}
		for _, name := range names {
			if shown[name] = true; !slices.Contains(known, name) {
				t.Errorf("%q: there is no metric %s", e, name)
			}
		}
		if strings.Count(e, "(") != strings.Count(e, ")") || strings.Count(e, "{") != strings.Count(e, "}") {
			t.Errorf("%q is not balanced", e)
		}
	}
	if len(shown) < 20 {
		t.Errorf("only %d metrics are shown", len(shown))
	}
}

func dashboard(t *testing.T) (expressions []string) {
	t.Helper()
	text, err := os.ReadFile("../deploy/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("an empty panel %q", p.Title)
		}
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	return expressions
}

func alerts(t *testing.T) (expressions []string) {
	t.Helper()
	text, err := os.ReadFile("../deploy/prometheus-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Labels           map[string]string
				Annotations      map[string]string
			}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if err := dec.Decode(&file); !errors.Is(err, io.EOF) {
		t.Error("more than one document")
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("incomplete: %+v", r)
			}
			expressions = append(expressions, r.Expr)
		}
	}
	return expressions
}

func BenchmarkObserve(b *testing.B) {
	m := used(busy)
	code := 0
	e := &events.Event{Type: events.ExecEnded, Data: events.Data{ExitCode: &code, Reason: "exited", Duration: events.Duration(3 * time.Millisecond), StdoutBytes: 10}}
	for b.Loop() {
		m.Observe(e)
	}
}

// Every metric is documented, and no other is.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := used(busy).Gather().Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		name, own := strings.CutPrefix(f.GetName(), "caisson_")
		if !own {
			continue
		}
		if n++; strings.Count(string(page), "\n| `"+name+"` |") != 1 {
			t.Errorf("%s is not documented once", f.GetName())
		}
	}
	if rows := strings.Count(string(page), "\n| `"); rows != n {
		t.Errorf("%d rows for %d metrics", rows, n)
	}
}
