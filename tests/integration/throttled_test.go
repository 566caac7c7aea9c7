package integration

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// spin uses all the CPU that it gets.
const spin = "while :; do :; done"

var throttledSeconds = regexp.MustCompile(`(?m)^caisson_cpu_throttled_seconds_total ([0-9.e+-]+)$`)

// TestThrottlingIsTold: a limit of CPU that holds a sandbox back is an event when it begins
// and when it is over, a line of the log and a metric.
//
//caisson:kernel
func TestThrottlingIsTold(t *testing.T) {
	d := harness.Start(t)
	name := box(t, d, "slow", "--cpus", "0.1")
	if _, text := scrape(t, d, "/metrics"); throttledSeconds.FindStringSubmatch(text) == nil {
		t.Fatalf("no metric: %s", text)
	}
	d.Run(t, "exec", "-d", "--timeout", "5s", name, "--", "sh", "-c", spin)
	told := func() (list []string) {
		for _, e := range parseEvents(t, d.Run(t, "events", "--json", "--filter", "sandbox="+name).Stdout) {
			if e.Data.Limit == "cpu" {
				list = append(list, e.Type)
			}
		}
		return list
	}
	await(t, "the end of it", func() bool { return slices.Equal(told(), []string{"limit.hit", "limit.cleared"}) })
	const line = "the CPU limit holds a sandbox back"
	if n := strings.Count(d.Log(), line); n != 1 {
		t.Errorf("%d lines of the log", n)
	}
	_, text := scrape(t, d, "/metrics")
	if m := throttledSeconds.FindStringSubmatch(text); m == nil || m[1] == "0" || !strings.Contains(text, `caisson_limit_hits_total{limit="cpu"} 1`) {
		t.Errorf("metrics %q: %s", m, text)
	}
	d.Run(t, "rm", "--force", name)
	if log := d.Log(); !regexp.MustCompile(`msg="sandbox ended".* throttled=[1-9]`).MatchString(log) {
		t.Errorf("the end of the sandbox does not tell it: %s", log)
	}
	d.Try("run", "--cpus", "0.1", "--timeout", "500ms", "--", "sh", "-c", spin)
	hits := parseEvents(t, d.Run(t, "events", "--json", "--filter", "type=limit.hit").Stdout)
	if !slices.ContainsFunc(hits, func(e event) bool { return e.Data.Limit == "cpu" && e.Data.ExecID == "1" && e.Data.Name != name }) {
		t.Errorf("no event of a short run: %+v", hits)
	}
}
