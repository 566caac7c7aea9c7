package buildplan_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/rootfs/buildplan"
)

// honest is a plan with everything that a plan may have.
func honest() *buildplan.Plan {
	env := []string{"PATH=/bin", "A=1"}
	return &buildplan.Plan{Stages: []buildplan.Stage{
		{Image: "base", Needed: true, Steps: []buildplan.Step{
			{Line: 2, Run: &buildplan.Run{Args: []string{"make"}, Env: env, Mounts: []buildplan.Mount{
				{Type: "secret", ID: "key", Target: "/run/secrets/key", Stage: -1, Mode: 0o400},
				{Type: "bind", Source: "/", Target: "/src", Stage: -1, ReadOnly: true},
			}}},
		}},
		{Base: 0, Needed: true, Steps: []buildplan.Step{
			{Line: 4, Copy: &buildplan.Copy{Stage: 0, Sources: []string{"/a"}, Dest: "/b"}},
			{Line: 5, Dir: &buildplan.Dir{Name: "/c"}},
			{Line: 6, Run: &buildplan.Run{Args: []string{"true"}, Env: env}},
		}, Config: buildplan.Config{Shell: []string{"/bin/sh"}}},
	}}
}

func sent(t *testing.T, w buildplan.Wire) (got buildplan.Wire) {
	t.Helper()
	data, err := json.Marshal(w)
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWire(t *testing.T) {
	want := honest()
	w := want.ToWire()
	if len(w.Strings) != 2 || len(w.Envs) != 2 {
		t.Errorf("variables are sent more than once: %q, %v", w.Strings, w.Envs)
	}
	got, err := sent(t, w).Unpack([]string{"key"})
	if err != nil || !reflect.DeepEqual(got, honest()) {
		t.Errorf("got %+v, %v", got, err)
	}
	if !reflect.DeepEqual(want, honest()) {
		t.Error("the plan was changed")
	}
}

// A planner that was taken over gets no plan through that the daemon could not do.
func TestUnpackRefuses(t *testing.T) {
	for says, change := range map[string]func(p *buildplan.Plan, w *buildplan.Wire){
		"no plan":                 func(_ *buildplan.Plan, w *buildplan.Wire) { w.Plan.Stages = nil },
		"begins with stage 1":     func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[1].Base = 1 },
		"begins with stage -5":    func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[0].Base = -5 },
		"it reads stage 1":        func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[1].Steps[0].Copy.Stage = 1 },
		"it reads stage -2":       func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[0].Steps[0].Run.Mounts[1].Stage = -2 },
		"a step is one of":        func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[1].Steps[1].Dir = nil },
		"the command is none":     func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[1].Steps[2].Run.Args = nil },
		"there is no string 7":    func(_ *buildplan.Plan, w *buildplan.Wire) { w.Envs[0][0] = 7 },
		"there is no string -1":   func(_ *buildplan.Plan, w *buildplan.Wire) { w.Envs[1][1] = -1 },
		"a command has no var":    func(_ *buildplan.Plan, w *buildplan.Wire) { w.Envs = w.Envs[:1] },
		`the mount "secret" on`:   func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[0].Steps[0].Run.Mounts[0].ID = "other" },
		`the mount "bind" on`:     func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[0].Steps[0].Run.Mounts[1].ReadOnly = false },
		`the mount "host" on`:     func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[0].Steps[0].Run.Mounts[1].Type = "host" },
		"has the mode 4755":       func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[0].Steps[0].Run.Mounts[0].Mode = 0o4755 },
		`the checksum "x" is non`: func(p *buildplan.Plan, _ *buildplan.Wire) { p.Stages[1].Steps[0].Copy.Checksum = "x" },
	} {
		w := sent(t, honest().ToWire())
		change(&w.Plan, &w)
		if _, err := w.Unpack([]string{"key"}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}
