package runtime

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// coldAndPooled does test with sandboxes that are made for their request, and with such
// as were ready.
func coldAndPooled(t *testing.T, test func(*testing.T, *fixture)) {
	t.Run("cold", func(t *testing.T) { test(t, newFixture(t)) })
	t.Run("out of a pool", func(t *testing.T) {
		f := newFixture(t)
		f.pooled(t, 1)
		test(t, f)
		if st := f.pool(); st.Hits != 1 {
			t.Errorf("the pool served nobody: %+v", st)
		}
	})
}

// toCome makes a sandbox named s whose command is still to be admitted.
func (f *fixture) toCome(t *testing.T, steps ...string) (*sandbox, *plan.Command) {
	t.Helper()
	r := request(steps...)
	r.Create.Name = "s"
	p, command, err := f.planMain(callerContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.obtain(callerContext(t), p, nil, func(rec *record) { rec.Main, rec.Detached = mainToCome, true })
	if err != nil {
		t.Fatal(err)
	}
	return s, command
}

// onDisk is the record of s that a later daemon would find.
func (f *fixture) onDisk(t *testing.T, s *sandbox) record {
	t.Helper()
	r, err := readRecord(f.paths.record(s.id), f.boot)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantNothingTaken checks that whoever names s, which is not live yet, is refused, and
// that no later daemon goes on with it.
func (f *fixture) wantNothingTaken(t *testing.T, s *sandbox) {
	t.Helper()
	if r, err := readRecord(f.paths.record(s.id), f.boot); err == nil && r.Ready {
		t.Errorf("a later daemon would go on with %+v", r)
	}
	ctx := callerContext(t)
	for what, call := range map[string]func() error{
		"exec":  func() error { _, err := f.Exec(ctx, "s", script("out:other", "exit:9"), IO{}); return err },
		"start": func() error { _, err := f.StartExec(ctx, "s", script("exit:9")); return err },
		"files": func() error { _, err := f.Files(ctx, "s"); return err },
	} {
		if err := call(); sbxerr.Of(err) != sbxerr.State || !strings.Contains(err.Error(), "sandbox s is creating") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The command that a sandbox is for is the first that it takes, and the only one that
// ends it.
func TestNothingPrecedesTheMainCommand(t *testing.T) {
	coldAndPooled(t, func(t *testing.T, f *fixture) {
		ctx := callerContext(t)
		s, command := f.toCome(t, "await:10", "out:own", "exit:3")
		f.wantNothingTaken(t, s)
		_, err := f.Update(ctx, "s", UpdateRequest{Labels: map[string]string{"a": "b"}})
		errtest.Want(t, err, sbxerr.State, "sandbox s is creating")
		_, err = f.Pause(ctx, "s")
		errtest.Want(t, err, sbxerr.State, "sandbox s is creating")
		errtest.Want(t, f.Logs(ctx, "s", LogOptions{}, nil, nil), sbxerr.State, "sandbox s is creating")
		e, err := f.startExec(ctx, s, command, true)
		if err != nil {
			t.Fatal(err)
		}
		if r := f.onDisk(t, s); !r.Ready || r.Main != e.number() || r.IdleSince != 0 || s.info().State != StateRunning {
			t.Errorf("with command %d: %+v", e.number(), r)
		}
		if r, err := f.Exec(ctx, "s", script("exit:9"), IO{}); err != nil || r.ExitCode != 9 {
			t.Errorf("another command: %+v, %v", r, err)
		}
		if info := s.info(); info.State != StateRunning || s.endCause() != nil {
			t.Errorf("after it the sandbox is %s, because %v", info.State, s.endCause())
		}
		f.engine.poke(t, s.id)
		if info := f.over(t, s.id); info.Result == nil || info.Result.ExitCode != 3 || info.Result.Reason != ReasonExited {
			t.Errorf("ended as %+v", info.Result)
		}
		var out bytes.Buffer
		if err := f.Logs(ctx, "s", LogOptions{}, &out, nil); err != nil || out.String() != "own" {
			t.Errorf("logs %q, %v", &out, err)
		}
	})
}

// A run tells the same of a sandbox that was ready as of one that was made for it.
func TestRunsAreToldAlike(t *testing.T) {
	coldAndPooled(t, func(t *testing.T, f *fixture) {
		r, err := f.Run(callerContext(t), request("await:10", "out:x", "exit:4"), IO{Started: func(i Info, _ ExecInfo) {
			f.engine.count(t, i.ID, "cpu.stat", "usage_usec 3000\nnr_throttled 7\n")
			f.engine.poke(t, i.ID)
		}})
		if err != nil || r.ExitCode != 4 || r.PeakMemoryBytes != 4096 || r.CPU != 1500*time.Microsecond || r.ThrottledPeriods != 4 {
			t.Errorf("%+v, %v", r, err)
		}
		if n := len(r.Stages); n < 2 || r.Stages[n-1].Name != "exec" {
			t.Errorf("stages %+v", r.Stages)
		}
	})
}

// What is claimed is nobody's to use before it is what was asked for.
func TestClaimedSandboxTakesNothing(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	f.pooled(t, 1)
	idle := time.Hour
	p, err := f.planFor(ctx, plan.CreateRequest{Name: "s", Env: []string{"FOO=bar"}, IdleTimeout: &idle})
	if err != nil {
		t.Fatal(err)
	}
	s, was, err := f.claim(f.pools.For(p)[0], p)
	if err != nil {
		t.Fatal(err)
	}
	f.wantNothingTaken(t, s)
	letGo := f.images.Hold() // a command whose user is looked for would come after the assignment
	early := make(chan error, 1)
	go func() {
		_, err := f.StartExec(ctx, "s", plan.ExecRequest{Args: []string{"exit:0"}, User: "nobody"})
		early <- err
	}()
	err = within(t, "a refusal before that", early)
	letGo()
	errtest.Want(t, err, sbxerr.State, "is creating")
	if err := f.assign(ctx, s, was, p, nil); err != nil {
		t.Fatal(err)
	}
	if r := f.onDisk(t, s); !r.Ready || r.Pooled || r.Name != "s" || r.IdleSince == 0 || s.info().State != StateRunning {
		t.Errorf("assigned, it is %+v", r)
	}
	var out bytes.Buffer
	if _, err := f.Exec(ctx, "s", script("env", "exit:0"), IO{Stdout: &out}); err != nil || !slices.Contains(strings.Split(out.String(), "\n"), "FOO=bar") {
		t.Errorf("inside: %q, %v", &out, err)
	}
}

// A claimed sandbox that ends before it is what was asked for is nobody's: nothing of it
// is kept, whatever it ends for.
func TestClaimedSandboxThatEnds(t *testing.T) {
	f := newFixture(t)
	f.pooled(t, 1)
	p, err := f.planFor(callerContext(t), plan.CreateRequest{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	s, was, err := f.claim(f.pools.For(p)[0], p)
	if err != nil {
		t.Fatal(err)
	}
	s.end(ErrStopped)
	within(t, "its end", s.made)
	errtest.Want(t, f.assign(callerContext(t), s, was, p, nil), sbxerr.Canceled, "the sandbox was stopped")
	within(t, "its removal", s.gone)
}

// Nobody was told of a sandbox that ends before it is live, so nothing of it is kept,
// whatever it ends for.
func TestEndBeforeItIsLive(t *testing.T) {
	for _, cause := range []error{ErrStopped, errInitLost} {
		coldAndPooled(t, func(t *testing.T, f *fixture) {
			s, command := f.toCome(t, "exit:0")
			s.end(cause)
			within(t, "its end", s.made)
			_, err := f.startExec(callerContext(t), s, command, true)
			errtest.Want(t, err, sbxerr.State, cause.Error())
			within(t, "its removal", s.gone)
		})
	}
}

// Who asks for a sandbox again waits until it is what was asked for.
func TestEnsureWaitsForTheMainCommand(t *testing.T) {
	coldAndPooled(t, func(t *testing.T, f *fixture) {
		ctx := callerContext(t)
		s, command := f.toCome(t, "await:10", "exit:0")
		ensured := make(chan Info, 1)
		go func() {
			info, err := f.Create(ctx, plan.CreateRequest{Name: "s", Ensure: true})
			if err != nil {
				t.Error(err)
			}
			ensured <- info
		}()
		if _, err := f.startExec(ctx, s, command, true); err != nil {
			t.Fatal(err)
		}
		if info := within(t, "an answer", ensured); info.ID != s.id || info.State != StateRunning {
			t.Errorf("ensured %+v", info)
		}
		f.engine.poke(t, s.id)
		f.over(t, s.id)
	})
}

// What is changed in a sandbox as soon as that is possible is in its record for good.
func TestChangedAtOnce(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(callerContext(t), soon)
	defer cancel()
	for range 20 {
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			for ctx.Err() == nil {
				if _, err := f.Update(ctx, "s", UpdateRequest{Labels: map[string]string{"a": "b"}}); err == nil {
					return
				}
			}
		}()
		f.session(t, plan.CreateRequest{Name: "s"})
		within(t, "the change", changed)
		if r := f.onDisk(t, f.mustFind(t, "s")); r.Labels["a"] != "b" {
			t.Errorf("kept labels %v", r.Labels)
		}
		if _, err := f.Remove(ctx, "s", true); err != nil {
			t.Fatal(err)
		}
	}
}
