package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/plan"
)

// known makes sandboxes known of which there is nothing but the name.
func known(t *testing.T, m *Manager, list ...record) {
	t.Helper()
	for _, r := range list {
		if err := m.admit(m.newSandbox(&plan.Sandbox{ID: r.ID, Grant: rootGrant(t)}, r)); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	idA1 = "aaaa2222222222222222222222"
	idA2 = "aaaa3333333333333333333333"
	idB  = "bbbb2222222222222222222222"
)

func TestFind(t *testing.T) {
	m := newTestManager()
	known(t, m, record{ID: idA1, Name: "one"}, record{ID: idA2, Name: "bbbb"}, record{ID: idB, Name: idB})
	for ref, want := range map[string]string{
		"one": idA1, idA1: idA1, "aaaa3": idA2, "bbbb2": idB, idB: idB,
		"bbbb": idA2, // a whole name before the beginning of an ID
	} {
		s, err := m.find(callerContext(t), ref)
		if err != nil || s.record.ID != want {
			t.Errorf("find %q: %v, %v, want %s", ref, s, err, want)
		}
	}
	for ref, words := range map[string]string{
		"aaaa":     `"aaaa" is the beginning of 2 IDs`,
		"aaa":      `no sandbox "aaa"`, // too short to be meant
		"":         `no sandbox ""`,
		"on":       `no sandbox "on"`,
		idA1 + "2": "no sandbox",
	} {
		_, err := m.find(callerContext(t), ref)
		errtest.Want(t, err, sbxerr.NotFound, words)
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	m := newTestManager()
	known(t, m, record{ID: idA1, Name: "one"})
	for _, name := range []string{"one", idA1} {
		err := m.admit(m.newSandbox(&plan.Sandbox{ID: idB, Grant: rootGrant(t)}, record{ID: idB, Name: name}))
		errtest.Want(t, err, sbxerr.Exists, "is taken by sandbox "+idA1)
	}
	if _, err := m.find(callerContext(t), idB); err == nil {
		t.Error("a refused sandbox is known")
	}
	s, _ := m.find(callerContext(t), "one")
	m.forget(s)
	known(t, m, record{ID: idB, Name: "one"})
}

func TestNamesDuringARun(t *testing.T) {
	f := newFixture(t)
	info := f.start(t, plan.Request{Create: plan.CreateRequest{Name: "job"}, Exec: plan.ExecRequest{Args: []string{"exit:0"}}})
	_, err := f.Start(callerContext(t), plan.Request{Create: plan.CreateRequest{Name: "job"}, Exec: plan.ExecRequest{Args: []string{"exit:0"}}})
	errtest.Want(t, err, sbxerr.Exists, `the name "job" is taken`)
	if got, err := f.find(callerContext(t), "job"); err != nil || got.record.ID != info.ID {
		t.Errorf("the holder of the name: %v, %v", got, err)
	}
	if _, err := f.Remove(callerContext(t), "job", true); err != nil {
		t.Error(err)
	}
	f.start(t, plan.Request{Create: plan.CreateRequest{Name: "job"}, Exec: plan.ExecRequest{Args: []string{"exit:0"}}})
}

func TestList(t *testing.T) {
	m := newTestManager()
	old, young := time.Unix(1, 0), time.Unix(2, 0)
	known(t, m, record{ID: idB, CreatedAt: old, Name: "b", Main: 1}, record{ID: idA2, CreatedAt: young, Name: "a2", Main: 1}, record{ID: idA1, CreatedAt: young, Name: "a1", Main: 1, Detached: true})
	names := func() string {
		list, err := m.List(callerContext(t))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, i := range list {
			names = append(names, i.Name)
		}
		return strings.Join(names, " ")
	}
	if got := names(); got != "b a1 a2" {
		t.Errorf("listed %q, want the oldest first, then by ID", got)
	}
	for _, s := range m.all() {
		s.setState(StateRemoving)
	}
	if got := names(); got != "a1" {
		t.Errorf("listed %q, want no run that is over for its caller", got)
	}
}

func TestIdle(t *testing.T) {
	before := time.Now()
	m := newTestManager()
	m.lastUse = before
	if since, idle := m.IdleSince(); !idle || since != before {
		t.Errorf("a fresh manager: %v, %v", since, idle)
	}
	first, second := m.Busy(), m.Busy()
	first()
	first() // counts once
	if _, idle := m.IdleSince(); idle {
		t.Error("idle during a call")
	}
	second()
	since, idle := m.IdleSince()
	if !idle || !since.After(before) {
		t.Errorf("after a call: %v, %v", since, idle)
	}
	known(t, m, record{ID: idB, Name: "b"})
	if _, idle := m.IdleSince(); idle {
		t.Error("idle with a sandbox")
	}
	s, _ := m.find(callerContext(t), "b")
	m.forget(s)
	if again, idle := m.IdleSince(); !idle || !again.After(since) {
		t.Errorf("after a sandbox: %v, %v", again, idle)
	}
}

func TestInspect(t *testing.T) {
	f := newFixture(t)
	_, err := f.Inspect(callerContext(t), "nobody")
	errtest.Want(t, err, sbxerr.NotFound)
	info := f.start(t, plan.Request{Create: plan.CreateRequest{Name: "job", Labels: map[string]string{"team": "red"}, Session: "s", Task: "t"}, Exec: plan.ExecRequest{Args: []string{"await:10"}}})
	d, err := f.Inspect(callerContext(t), "job")
	if err != nil {
		t.Fatal(err)
	}
	if d.ID != info.ID || d.State != StateRunning || d.PID != f.engine.get(info.ID).cmd.Process.Pid || d.Labels["team"] != "red" || d.Session != "s" || d.Task != "t" {
		t.Errorf("info %+v", d.Info)
	}
	if d.Cgroup != "/caisson-test/"+info.ID || d.ImageDigest != "sha256:1" || d.HostIDBase != 1879048192 || d.HostIDSize != idblock.Size || d.Limits != plan.DefaultLimits() {
		t.Errorf("detail %+v", d)
	}
	var spec specs.Spec
	if err := json.Unmarshal(d.SpecJSON, &spec); err != nil || spec.Linux.CgroupsPath != d.Cgroup {
		t.Errorf("specification %s: %v", d.SpecJSON, err)
	}
	f.engine.poke(t, info.ID)
	f.over(t, info.ID)
	if d, err := f.Inspect(callerContext(t), "job"); err != nil || d.State != StateExited || d.PID != 0 || d.Result == nil || d.ExitedAt.IsZero() {
		t.Errorf("after its end: %+v, %v", d, err)
	}
}

// TestLookingOnWhileSandboxesComeAndGo is for the race detector.
func TestLookingOnWhileSandboxesComeAndGo(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(callerContext(t))
	var onlookers sync.WaitGroup
	for range 2 {
		onlookers.Go(func() {
			for ctx.Err() == nil {
				list, _ := f.List(ctx)
				for _, i := range list {
					_, _ = f.Inspect(ctx, i.ID)
					_ = f.Logs(ctx, i.ID, LogOptions{}, new(bytes.Buffer), new(bytes.Buffer))
				}
			}
		})
	}
	for range 3 {
		if _, err := f.Run(callerContext(t), request("out:x", "exit:0"), IO{}); err != nil {
			t.Error(err)
		}
		info := f.start(t, request("out:x", "exit:0"))
		if _, err := f.Remove(callerContext(t), info.ID, true); err != nil {
			t.Error(err)
		}
	}
	cancel()
	onlookers.Wait()
}
