package network

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

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// metricsOf are the lines that a scrape of d has of routes.
func metricsOf(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.State, "metrics.sock"))
	}}}
	res, err := client.Get("http://caisson/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "caisson_route_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

// Metrics have what requests by each route took since the daemon started, and the end of a
// sandbox what its own took.
func TestSpentIsTold(t *testing.T) {
	need.Tools(t, "curl", "dpkg")
	m := startModels(t)
	m.answer = metered
	reaches(t, modelsAt)
	asks(t, "models.example")
	d := launch(t, fmt.Sprintf(`network: {dns: [%s]}
secrets: {one: "file:%s"}
prices: {"mini*": {input: 1000, output: 5000}}
profiles:
  agent:
    image: tools
    routes:
      gpt: {preset: openai, upstream: "https://models.example:8443/v1", credential: one, ca: "file:%s"}
`, resolver, writeFile(t, "one", canary), m.ca))
	d.Run(t, "image", "from-host", "tools", "--package", "curl")
	ask := func(box string) {
		t.Helper()
		got := d.Run(t, "exec", box, "--", "curl", "-sS", "-m", "20", "--noproxy", "*", "-d", `{"stream":true}`, "http://gpt.caisson.internal/chat/completions").Stdout
		if !strings.Contains(got, "[DONE]") {
			t.Fatalf("%q", got)
		}
	}
	const one, quiet = "one", "quiet"
	for _, box := range []string{one, quiet} {
		d.Run(t, "create", "--profile", "agent", "--name", box)
	}
	if got := metricsOf(t, d); got != "" {
		t.Errorf("before the first request: %s", got)
	}
	for range 3 {
		ask(one)
	}
	counted := func(requests int) string {
		return fmt.Sprintf("caisson_route_cost_total{route=\"gpt\"} %v\ncaisson_route_requests_total{route=\"gpt\"} %d\n"+
			"caisson_route_tokens_total{direction=\"in\",route=\"gpt\"} %d\ncaisson_route_tokens_total{direction=\"out\",route=\"gpt\"} %d",
			float64(requests*150)/1000, requests, requests*100, requests*10)
	}
	if !until(10*time.Second, func() bool { return metricsOf(t, d) == counted(3) }) {
		t.Errorf("%s\nwant\n%s", metricsOf(t, d), counted(3))
	}
	ask(one)
	for _, box := range []string{one, quiet} { // at once: the last request is told of first
		d.Run(t, "rm", "-f", box)
	}
	ended := func(box string) string {
		return d.Run(t, "events", "--json", "--since", "10m", "--filter", "type=sandbox.ended", "--filter", "sandbox="+box).Stdout
	}
	for _, want := range []string{`"input_tokens":400`, `"output_tokens":40`, `"cost":0.6`} {
		if got := ended(one); !strings.Contains(strings.ReplaceAll(got, " ", ""), want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if got := ended(quiet); !strings.Contains(got, "sandbox.ended") || strings.Contains(got, `"input_tokens":4`) {
		t.Errorf("one that asked nothing: %s", got)
	}
	time.Sleep(1100 * time.Millisecond) // until the book is written
	d.Kill(t)
	d.Launch(t)
	ask(createFor(t, d, "--profile", "agent").id)
	if !until(10*time.Second, func() bool { return metricsOf(t, d) == counted(1) }) {
		t.Errorf("the next daemon: %s", metricsOf(t, d))
	}
}
