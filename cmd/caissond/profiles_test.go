package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime/plan"
)

func TestProfiles(t *testing.T) {
	got, err := profiles(config.Config{Profiles: map[string]config.Profile{
		"big":   {Memory: "4G", CPUs: "1.5", Tmpfs: "1G", PIDs: 1000, CPUShares: 99, Files: 2048, Image: "tools", Seccomp: "compat", User: "7:7", Env: []string{"A=1"}},
		"loud":  {Alerts: config.Alerts{Memory: config.Threshold{Above: "90%", For: config.Duration(10 * time.Second)}, Tmpfs: config.Threshold{Above: "80%"}, Refusals: 20}},
		"empty": {},
		"debug": {Seccomp: "debug", Memory: "1G"},
		"deep":  {Nested: config.Nested{Depth: 4}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	big := plan.Profile{
		Image: "tools", Seccomp: "compat", User: "7:7",
		Limits: plan.Limits{MemoryBytes: 4 << 30, MilliCPU: 1500, PIDs: 1000, OpenFiles: 2048, TmpfsBytes: 1 << 30, CPUShares: 99},
	}
	if p := got["big"]; p.Image != big.Image || p.Seccomp != big.Seccomp || p.User != big.User || p.Limits != big.Limits || !slices.Equal(p.Env, []string{"A=1"}) {
		t.Errorf("big: %+v", p)
	}
	strict := plan.BuiltinProfiles()["strict"]
	if p := got["empty"]; p.Seccomp != "strict" || p.Limits != strict.Limits || p.User != strict.User || p.Image != strict.Image {
		t.Errorf("what is left out: %+v, want %+v", p, strict)
	}
	if a := got["loud"].Alerts; a != (plan.Alerts{Memory: plan.Threshold{Percent: 90, For: 10 * time.Second}, Tmpfs: plan.Threshold{Percent: 80}, Refusals: 20}) {
		t.Errorf("alerts: %+v", a)
	}
	if p := got["debug"]; p.Seccomp != "debug" || p.Limits.MemoryBytes != 1<<30 {
		t.Errorf("debug: %+v", p)
	}
	if got["deep"].NestedDepth != 4 || got["empty"].NestedDepth != 1 {
		t.Errorf("depths %d and %d", got["deep"].NestedDepth, got["empty"].NestedDepth)
	}
	if got["strict"].Limits != strict.Limits || len(got) != len(plan.BuiltinProfiles())+4 {
		t.Errorf("profiles %+v", got)
	}
}

func TestProfilesRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    config.Profile
		code sbxerr.Code // beneath that of the configuration
		want []string
	}{
		{"memory", config.Profile{Memory: "1X"}, sbxerr.Limits, []string{"profiles.p: memory: ", `"1X"`}},
		{"cpus", config.Profile{CPUs: "0"}, sbxerr.Limits, []string{"profiles.p: cpus: "}},
		{"tmpfs", config.Profile{Tmpfs: "-1"}, sbxerr.Limits, []string{"profiles.p: tmpfs: "}},
		{"tmpfs of nothing", config.Profile{Tmpfs: "0"}, sbxerr.Limits, []string{"profiles.p: tmpfs: "}},
		{"several", config.Profile{Memory: "x", CPUs: "y", Tmpfs: "z"}, sbxerr.Limits, []string{"memory: ", "cpus: ", "tmpfs: "}},
		{"out of range", config.Profile{Memory: "1K", PIDs: 1}, sbxerr.Limits, []string{`"memory" is 1024`, `"pids" is 1`}},
		{"files", config.Profile{Files: 1}, sbxerr.Limits, []string{"open files 1"}},
		{"alerts", config.Profile{Alerts: config.Alerts{Memory: config.Threshold{Above: "100%"}}}, sbxerr.DaemonConf, []string{"profiles.p: alerts.memory.above", `"100%"`}},
		{"alerts above nothing", config.Profile{Alerts: config.Alerts{PIDs: config.Threshold{For: 1}}}, sbxerr.DaemonConf, []string{"alerts.pids.above"}},
		{"alerts without a share", config.Profile{Alerts: config.Alerts{Tmpfs: config.Threshold{Above: "1G"}}}, sbxerr.DaemonConf, []string{"alerts.tmpfs.above", `"1G"`}},
		{"alerts in the past", config.Profile{Alerts: config.Alerts{CPU: config.Threshold{Above: "5%", For: -1}}}, sbxerr.DaemonConf, []string{"alerts.cpu.for"}},
		{"depth", config.Profile{Nested: config.Nested{Depth: 5}}, sbxerr.DaemonConf, []string{"profiles.p: nested depth 5: give 1 to 4"}},
		{"setup under strict", config.Profile{RootUser: "setup"}, sbxerr.DaemonConf, []string{"profiles.p: root_user: setup needs seccomp: compat, since strict refuses"}},
		{"an idle time before now", config.Profile{IdleTimeout: -1}, sbxerr.DaemonConf, []string{"idle_timeout -1ns: give at most"}},
		{"a pause without a time", config.Profile{OnIdle: "pause"}, sbxerr.DaemonConf, []string{"on idle pause after 0s"}},
		{"another root", config.Profile{RootUser: "all"}, sbxerr.DaemonConf, []string{`root_user: "all" is none of plain, setup`}},
		{"another root file system", config.Profile{Rootfs: "rx"}, sbxerr.DaemonConf, []string{`rootfs "rx" is none of ro, rw`}},
		{"depth below", config.Profile{Nested: config.Nested{Depth: -1}}, sbxerr.DaemonConf, []string{"nested depth -1"}},
		{"seccomp", config.Profile{Seccomp: "stric"}, sbxerr.SeccompProfile, []string{"profiles.p", `did you mean "strict"?`}},
	} {
		_, err := profiles(config.Config{Profiles: map[string]config.Profile{"p": tt.p, "good": {}}})
		if sbxerr.Of(err) != sbxerr.DaemonConf || !errors.Is(err, tt.code) {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", tt.name, err, w)
			}
		}
	}
	_, err := profiles(config.Config{Profiles: map[string]config.Profile{"b": {Memory: "x"}, "a": {Memory: "x"}}})
	if text := err.Error(); strings.Index(text, "profiles.a") > strings.Index(text, "profiles.b") || !strings.Contains(text, "profiles.b") {
		t.Errorf("order: %v", err)
	}
}

func TestStopClosesAllNewestFirst(t *testing.T) {
	d := &daemon{}
	var order []int
	failed := errors.New("failed")
	for i := range 3 {
		d.onStop(func(ctx context.Context) error {
			if err := ctx.Err(); err != nil {
				t.Errorf("stopping on a context that is over: %v", err)
			}
			order = append(order, i)
			if i == 1 {
				return failed
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as it is when a signal ends the daemon
	if err := d.stop(ctx); !errors.Is(err, failed) || !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("closed %v, %v", order, err)
	}
}

// clock is a daemon that becomes idle at a given time.
type clock struct{ busyUntil, idleSince time.Time }

func (c clock) IdleSince() (time.Time, bool) { return c.idleSince, time.Now().After(c.busyUntil) }

func TestWaitIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		waitIdle(t.Context(), clock{busyUntil: start.Add(10 * time.Second), idleSince: start.Add(10 * time.Second)}, 5*time.Second)
		if d := time.Since(start); d < 15*time.Second || d > 17*time.Second {
			t.Errorf("left after %s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		waitIdle(ctx, clock{busyUntil: start.Add(time.Hour)}, time.Millisecond)
		if d := time.Since(start); d != time.Second {
			t.Errorf("stopped after %s", d)
		}
	})
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := newLogger(config.Log{Level: "warn", Format: "json"}, &b)
	log.Info("hidden")
	log.Warn("shown", "sandbox", "x")
	if got := b.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"sandbox":"x"`) {
		t.Errorf("log %s", got)
	}
	b.Reset()
	newLogger(config.Log{Level: "debug", Format: "text"}, &b).Debug("shown")
	if !strings.Contains(b.String(), "level=DEBUG") {
		t.Errorf("log %s", b.String())
	}
}
