package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// scrape asks a daemon's metrics socket.
func scrape(t *testing.T, d *harness.Daemon, path string) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.State, "metrics.sock"))
	}}}
	return fetched(t, client, "http://caisson"+path)
}

func fetched(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// What happened is counted, and health follows the engine.
func TestMetrics(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, peers+fmt.Sprintf("metrics: {address: %s}\n", address))
	d.Run(t, "create", "--name", "one")
	d.Try("exec", "one", "--", "sh", "-c", "echo 123; exit 3")
	d.Try("run", "-m", "64M", "--", "tail", "/dev/zero")
	d.Try("rm", "absent")
	d.Run(t, "run", "--network", "open", "--", "sh", "-c", "nslookup absent.invalid || true")
	status, text := scrape(t, d, "/metrics")
	for _, line := range []string{
		`caisson_sandboxes{state="running"} 1`, `caisson_exec_duration_seconds_count{exit="failure",reason="exited"} 1`, `caisson_exec_duration_seconds_count{exit="signal",reason="oom"} 1`,
		`caisson_limit_hits_total{limit="memory"} 1`, `caisson_refused_calls_total{code="SBX-107"} 1`, `caisson_engine_up 1`, `caisson_sandbox_create_duration_seconds_count{source="new"} 3`,
		`caisson_call_duration_seconds_count{call="Create",outcome="ok"} 1`, `caisson_audit_failures_total 0`, `caisson_network_attempts_total{kind="lookup",verdict=`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in the metrics", line)
		}
	}
	if status != http.StatusOK || t.Failed() {
		t.Logf("%d %s", status, text)
	}
	if status, text := fetched(t, http.DefaultClient, "http://"+address+"/readyz"); status != http.StatusOK || text != "ok\n" {
		t.Errorf("ready at the address: %d %q", status, text)
	}
	if r := d.User(t, ann).Run(t, "ping"); !strings.HasPrefix(r.Stdout, "ready") {
		t.Errorf("a user's ping: %s", r.Stdout)
	}
	// The engine stops answering: nothing can be run, and the daemon itself is healthy.
	engine := containerdOf(t, d)
	harness.Freeze(t, engine)
	t.Cleanup(func() { _ = unix.Kill(engine, unix.SIGCONT) }) // it may have been replaced
	if status, text := scrape(t, d, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, "engine") {
		t.Errorf("ready without an engine: %d %q", status, text)
	}
	if r := d.Try("ping"); r.Code != 1 || !strings.HasPrefix(r.Stdout, "not ready: ") {
		t.Errorf("ping without an engine: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if status, _ := scrape(t, d, "/healthz"); status != http.StatusOK {
		t.Errorf("healthy: %d", status)
	}
	if _, text := scrape(t, d, "/metrics"); !strings.Contains(text, "caisson_engine_up 0\n") {
		t.Error("the engine is up in the metrics")
	}
	if err := unix.Kill(engine, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
