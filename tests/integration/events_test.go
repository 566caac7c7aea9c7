package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// event is a line of caisson events --json.
type event struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Subject string    `json:"subject"`
	Data    eventData `json:"data"`
}

type eventData struct {
	Caller       string   `json:"caller"`
	RequestID    string   `json:"request_id"`
	SandboxID    string   `json:"sandbox_id"`
	Name         string   `json:"name"`
	ExecID       string   `json:"exec_id"`
	ImageDigest  string   `json:"image_digest"`
	PolicyDigest string   `json:"policy_digest"`
	FilterDigest string   `json:"filter_digest"`
	Args         []string `json:"args"`
	Env          []string `json:"env"`
	ExitCode     *int     `json:"exit_code"`
	Reason       string   `json:"reason"`
	StdoutBytes  int64    `json:"stdout_bytes"`
	Limit        string   `json:"limit"`
	Verdict      string   `json:"verdict"`
	Host         string   `json:"host"`
	Rule         string   `json:"rule"`
	Action       string   `json:"action"`
	Path         string   `json:"path"`
	Bytes        int64    `json:"bytes"`
	Call         string   `json:"call"`
	Code         string   `json:"code"`
	Version      string   `json:"version"`
}

func parseEvents(t *testing.T, lines string) []event {
	t.Helper()
	var list []event
	for line := range strings.Lines(lines) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		e.Type = strings.TrimPrefix(e.Type, "run.caisson.")
		list = append(list, e)
	}
	return list
}

func types(list []event) (types []string) {
	for _, e := range list {
		types = append(types, e.Type)
	}
	return types
}

// one returns the only event of a type.
func one(t *testing.T, list []event, kind string) event {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(list), func(e event) bool { return e.Type != kind })
	if len(found) != 1 {
		t.Fatalf("%d events %s in %q", len(found), kind, types(list))
	}
	return found[0]
}

// The whole life of a sandbox is told in order, with who asked and what came of it.
func TestEventsOfASandbox(t *testing.T) {
	name := box(t, daemon, "told", "--network", "open")
	daemon.Try("exec", "-e", "TOKEN=hidden", name, "--", "sh", "-c", "echo out; nslookup absent.invalid; exit 3")
	daemon.Try("cp", "/etc/hostname", name+":/tmp/h")
	daemon.Run(t, "pause", name)
	daemon.Run(t, "resume", name)
	daemon.Run(t, "update", "--pids", "20", name)
	daemon.Run(t, "rm", "--force", name)
	out := daemon.Run(t, "events", "--json", "--filter", "sandbox="+name).Stdout
	if strings.Contains(out, "hidden") {
		t.Errorf("the value of a variable is told: %s", out)
	}
	list := parseEvents(t, out)
	life := slices.DeleteFunc(slices.Clone(list), func(e event) bool { return e.Type == "network.tried" || e.Type == "limit.hit" })
	want := []string{
		"sandbox.created", "exec.started", "exec.ended", "file.written", "sandbox.paused", "sandbox.resumed", "sandbox.updated", "sandbox.ended", "sandbox.removed",
	}
	if !slices.Equal(types(life), want) {
		t.Errorf("told %q, want %q", types(life), want)
	}
	created, started, ended := one(t, list, "sandbox.created").Data, one(t, list, "exec.started").Data, one(t, list, "exec.ended").Data
	if created.Caller != "uid 0" || created.RequestID == "" || !strings.HasPrefix(created.ImageDigest, "sha256:") || !strings.HasPrefix(created.PolicyDigest, "sha256:") || !strings.HasPrefix(created.FilterDigest, "sha256:") {
		t.Errorf("created %+v", created)
	}
	if !slices.Contains(started.Env, "TOKEN") || started.Args[0] != "sh" || started.ImageDigest != created.ImageDigest || started.PolicyDigest != created.PolicyDigest {
		t.Errorf("started %+v", started)
	}
	if ended.ExitCode == nil || *ended.ExitCode != 3 || ended.Reason != "exited" || ended.StdoutBytes < 4 || ended.RequestID != started.RequestID {
		t.Errorf("ended %+v", ended)
	}
	if w := one(t, list, "file.written").Data; w.Action != "copy_in" || w.Bytes == 0 {
		t.Errorf("written %+v", w)
	}
	if !slices.ContainsFunc(list, func(e event) bool {
		return e.Type == "network.tried" && e.Data.Host == "absent.invalid" && e.Data.Verdict != ""
	}) {
		t.Errorf("the lookup is not told: %+v", list)
	}
	if u := one(t, list, "sandbox.ended").Data; u.Reason != "the sandbox was removed" {
		t.Errorf("ended %+v", u)
	}
}

// Limits that were hit and calls that were refused are events, too.
func TestEventsOfRefusals(t *testing.T) {
	d := harness.StartWith(t, peers)
	a, b := d.User(t, ann), d.User(t, bob)
	a.Try("run", "-m", "64M", "--", "tail", "/dev/zero")
	a.Refused(t, "SBX-805", "run", "--json", "-m", "2G", "--", "true")
	b.Run(t, "run", "--", "true")
	list := parseEvents(t, a.Run(t, "events", "--json").Stdout)
	if l := one(t, list, "limit.hit").Data; l.Limit != "memory" {
		t.Errorf("limit %+v", l)
	}
	if c := one(t, list, "call.refused").Data; c.Code != "SBX-805" || c.Caller != "uid 54321" || !strings.HasSuffix(c.Call, "/Run") {
		t.Errorf("refused %+v", c)
	}
	for _, e := range list { // each user sees its own, root all and the host's
		if e.Data.Caller != "uid 54321" {
			t.Errorf("ann sees %+v", e)
		}
	}
	d.User(t, stranger).Try("ls")
	d.User(t, stranger).Try("ls")
	refused := func() []event {
		return parseEvents(t, d.Run(t, "events", "--json", "--filter", "type=call.refused", "--filter", "caller=uid 54323").Stdout)
	}
	await(t, "the refused connections", func() bool { return len(refused()) > 0 })
	if r := refused()[0].Data; r.Call != "connect" || r.Code != "SBX-805" {
		t.Errorf("a stranger's connection: %+v", r)
	}
	all := parseEvents(t, d.Run(t, "events", "--json").Stdout)
	if one(t, all, "daemon.started").Data.Version == "" || len(all) <= len(list) {
		t.Errorf("root sees %q", types(all))
	}
	// A cursor goes on where it was, and is refused after a restart.
	last := list[len(list)-1].ID
	a.Run(t, "run", "--", "true")
	if next := parseEvents(t, a.Run(t, "events", "--json", "--since", last).Stdout); len(next) == 0 || next[0].Type != "sandbox.created" {
		t.Errorf("after %s: %q", last, types(next))
	}
	a.Refused(t, "SBX-801", "events", "--json", "--since", "tomorrow")
	a.Refused(t, "SBX-807", "events", "--json", "--filter", "colour=red")
	d.Stop(t)
	d.Launch(t)
	d.User(t, ann).Refused(t, "SBX-806", "events", "--json", "--since", last)
}
