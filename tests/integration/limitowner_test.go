package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// owned is the part of a result that says whose a limit is.
type owned struct {
	ExitCode     int      `json:"exit_code"`
	Reason       string   `json:"reason"`
	OOMKilled    bool     `json:"oom_killed"`
	PIDsLimitHit bool     `json:"pids_limit_hit"`
	LimitsHit    []string `json:"limits_hit"`
	Sandbox      struct {
		LimitsHit []string `json:"limits_hit"`
	} `json:"sandbox"`
}

// eats runs out of memory in a child, and exits 0.
const eats = "tail /dev/zero; true"

func (o owned) isClean() bool {
	return !o.OOMKilled && !o.PIDsLimitHit && len(o.LimitsHit)+len(o.Sandbox.LimitsHit) == 0
}

func execOwned(t *testing.T, d *harness.Daemon, name, script string) (r owned) {
	t.Helper()
	d.Try("exec", "--json", name, "--", "sh", "-c", script).JSONIn(t, "result", &r)
	return r
}

// limitEvents are the events of limits of memory and processes, and whose they are.
func limitEvents(t *testing.T, d *harness.Daemon, name string) (list []eventData) {
	t.Helper()
	for _, e := range parseEvents(t, d.Run(t, "events", "--json", "--filter", "sandbox="+name, "--filter", "type=limit.hit").Stdout) {
		list = append(list, e.Data)
	}
	return list
}

// TestLimitsOfACommandThatExits0: a command says that a child of it was out of memory or of
// processes, and the next one that fails does not.
//
//caisson:kernel
func TestLimitsOfACommandThatExits0(t *testing.T) {
	d := harness.Start(t)
	name := box(t, d, "own", "-m", "32M", "--pids", "24")
	if r := execOwned(t, d, name, eats); r.ExitCode != 0 || !r.OOMKilled || !slices.Equal(r.LimitsHit, []string{"memory"}) || len(r.Sandbox.LimitsHit) > 0 {
		t.Errorf("out of memory: %+v", r)
	}
	if r := execOwned(t, d, name, "exit 3"); r.ExitCode != 3 || !r.isClean() {
		t.Errorf("the next one: %+v", r)
	}
	if r := execOwned(t, d, name, "(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do sleep 1 & done) 2> /dev/null; true"); r.ExitCode != 0 || !r.PIDsLimitHit || !slices.Equal(r.LimitsHit, []string{"pids"}) {
		t.Errorf("out of processes: %+v", r)
	}
	await(t, "a process", func() bool { return d.Try("exec", name, "--", "true").Code == 0 })
	if r := execOwned(t, d, name, "exit 3"); r.ExitCode != 3 || !r.isClean() {
		t.Errorf("the one after that: %+v", r)
	}
	told := limitEvents(t, d, name)
	if len(told) < 2 || told[0].ExecID != "1" || told[0].Limit != "memory" || told[1].ExecID != "3" || told[1].Limit != "pids" {
		t.Errorf("events %+v", told)
	}
	if _, text := scrape(t, d, "/metrics"); !strings.Contains(text, `caisson_limit_hits_total{limit="memory"} 1`) || strings.Contains(text, `caisson_limit_hits_total{limit="pids"} 0`) {
		t.Errorf("metrics: %s", text)
	}
}

// TestLimitsOfTwoCommands: of two commands at once neither is blamed, and both say that it
// was in the sandbox.
//
//caisson:kernel
func TestLimitsOfTwoCommands(t *testing.T) {
	d := harness.Start(t)
	name := box(t, d, "two", "-m", "32M")
	idle := strings.TrimSpace(d.Run(t, "exec", "-d", name, "--", "sleep", "100").Stdout)
	shared := []string{"memory"}
	if r := execOwned(t, d, name, eats); r.ExitCode != 0 || r.OOMKilled || len(r.LimitsHit) > 0 || !slices.Equal(r.Sandbox.LimitsHit, shared) {
		t.Errorf("the one that ate: %+v", r)
	}
	if r := execOwned(t, d, name, "exit 3"); !r.isClean() {
		t.Errorf("one that began after that: %+v", r)
	}
	d.Run(t, "kill", name, idle)
	var r owned
	d.Try("attach", "--json", name, idle).JSONIn(t, "result", &r)
	if r.OOMKilled || !slices.Equal(r.Sandbox.LimitsHit, shared) {
		t.Errorf("the one beside it: %+v", r)
	}
	if told := limitEvents(t, d, name); len(told) != 1 || told[0].ExecID != "" || told[0].Reason != "in the sandbox: command 1, or command 2" {
		t.Errorf("events %+v", told)
	}
}

// TestLimitsOfWhatIsLeft: what a command left running hits a limit when it is over. An event
// names it, and no later command is blamed, also not after a restart.
//
//caisson:kernel
func TestLimitsOfWhatIsLeft(t *testing.T) {
	d := harness.Start(t)
	name := box(t, d, "left", "-m", "32M")
	if r := execOwned(t, d, name, "(until test -e /tmp/go; do sleep 0.02; done; tail /dev/zero) > /dev/null 2>&1 &"); !r.isClean() {
		t.Errorf("the one that left it: %+v", r)
	}
	if r := execOwned(t, d, name, "touch /tmp/go"); r.OOMKilled {
		t.Errorf("the one that let it go on: %+v", r)
	}
	await(t, "the event", func() bool { return len(limitEvents(t, d, name)) == 1 })
	if r := execOwned(t, d, name, "exit 3"); r.OOMKilled {
		t.Errorf("a later one: %+v", r)
	}
	d.Kill(t)
	d.Launch(t)
	if r := execOwned(t, d, name, "exit 3"); !r.isClean() {
		t.Errorf("one after a restart: %+v", r)
	}
	if r := execOwned(t, d, name, eats); !r.OOMKilled {
		t.Errorf("one that eats: %+v", r)
	}
}
