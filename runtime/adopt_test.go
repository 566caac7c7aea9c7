package runtime

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
)

// next is the daemon that comes after f.
func (f *fixture) next(t testing.TB) *fixture {
	t.Helper()
	n := &fixture{dir: f.dir, images: f.images, engine: f.engine}
	n.Manager = assemble(f.engine, f.images, f.log, f.opts)
	n.blocks, n.groups, n.boot, n.owners = f.blocks, f.groups, f.boot, f.owners
	n.withoutRoot()
	t.Cleanup(func() { n.end(t) })
	return n
}

// die ends the daemon f as a kill would, with the PID 1 of the sandbox id.
func (f *fixture) die(t testing.TB, id string) {
	t.Helper()
	f.KeepOnExit()
	if err := f.drain(callerContext(t)); err != nil {
		t.Fatal(err)
	}
	r, err := readRecord(f.paths.record(id), f.boot)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "PID 1 has ended", func() bool {
		p, err := openKnown(r.PID, r.PIDBegan)
		if err == nil {
			err = p.close()
		}
		return errors.Is(err, errProcessEnded)
	})
}

// recover has f go on with what is there, and expects as many sandboxes.
func (f *fixture) recover(t testing.TB, want int) {
	t.Helper()
	if known, err := f.Recover(callerContext(t)); err != nil || known != want {
		t.Fatalf("knows %d sandboxes, %v; want %d", known, err, want)
	}
}

// wantEnded checks that the sandbox id has ended, and how its command did.
func (f *fixture) wantEnded(t *testing.T, id string, code int, reason Reason, output string) {
	t.Helper()
	ctx := callerContext(t)
	info, err := f.Wait(ctx, id)
	if err != nil || info.State != StateExited || info.ExitedAt.IsZero() {
		t.Errorf("%+v, %v", info, err)
	}
	e, err := f.WaitExec(ctx, id, "1")
	if err != nil || e.Result.ExitCode != code || e.Result.Reason != reason {
		t.Errorf("its command: %+v, %v", e.Result, err)
	}
	var out bytes.Buffer
	if err := f.Logs(ctx, id, LogOptions{Exec: "1"}, &out, nil); err != nil || out.String() != output {
		t.Errorf("its output: %q, %v", &out, err)
	}
	if r := f.mustFind(t, id).kept(); r.Main != 0 && info.Result != e.Result {
		t.Errorf("the sandbox ended with %+v", info.Result)
	}
}

// TestEndedWithoutDaemon: what ends while no daemon sees it is known to the next
// ones, with its output, until it is removed.
func TestEndedWithoutDaemon(t *testing.T) {
	for name, detached := range map[string]bool{"a session": false, "a detached run": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			id := f.commandIn(t, detached, "out:told", "hang")
			eventually(t, "it writes", func() bool { return f.mustFind(t, id).executions()[0].info().StdoutBytes == 4 })
			f.die(t, id)
			for range 2 {
				n := f.next(t)
				n.recover(t, 1)
				n.wantEnded(t, id, exitKilled, ReasonLost, "told")
				n.passOn(t)
				f = n
			}
			n := f.next(t)
			n.recover(t, 1)
			if _, err := n.Remove(callerContext(t), id, false); err != nil {
				t.Error(err)
			}
			n.wantNothingLeft(t)
		})
	}
}

// passOn is a whole life of a daemon after its start, up to the next one.
func (f *fixture) passOn(t *testing.T) {
	t.Helper()
	if _, err := f.Cleanup(callerContext(t), false); err != nil {
		t.Error(err)
	}
	f.KeepOnExit()
	if err := f.drain(callerContext(t)); err != nil {
		t.Error(err)
	}
}

// TestEndingIsKept: how a detached command ended is known to the next daemon, also
// where PID 1 has ended and the result was still to be put together.
func TestEndingIsKept(t *testing.T) {
	f := newFixture(t)
	id := f.commandIn(t, true, "out:told", "hang")
	e := f.mustFind(t, id).executions()[0]
	eventually(t, "it writes", func() bool { return e.info().StdoutBytes == 4 })
	f.keepEnding(e, ending{Exit: pid1.Exit{Code: 3, MaxRSSBytes: 7}, Known: true, Reason: ReasonExited, Duration: time.Minute})
	f.die(t, id)
	for range 2 {
		n := f.next(t)
		n.recover(t, 1)
		n.wantEnded(t, id, 3, ReasonExited, "told")
		info, err := n.Wait(callerContext(t), id)
		if r := info.Result; err != nil || r.Duration != time.Minute || r.MaxRSSBytes != 7 || r.PeakMemoryBytes != 4096 || r.StdoutBytes != 4 || len(r.Warnings) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		n.passOn(t)
		f = n
	}
	n := f.next(t)
	n.recover(t, 1)
}

// TestKeptEndingIsFinal: PID 1 is not asked again how a command ended, which knows the
// signal alone.
func TestKeptEndingIsFinal(t *testing.T) {
	f := newFixture(t)
	s := f.mustFind(t, f.session(t, plan.CreateRequest{}).ID)
	kept := ending{Exit: pid1.Exit{Signal: 15}, Known: true, Reason: ReasonTimeout, TimedOut: true, Duration: time.Minute}
	if got := f.await(callerContext(t), newExecution(s, execRecord{Number: 1, Ending: &kept}, nil, nil)); !reflect.DeepEqual(got, kept) {
		t.Errorf("%+v", got)
	}
}

// TestRunThatNeverBegan: a detached run whose daemon ended before its command was
// admitted has ended, and says that the command is lost.
func TestRunThatNeverBegan(t *testing.T) {
	for name, number := range map[string]uint32{"its number was kept": 1, "its number was not kept": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			id := f.start(t, request("hang")).ID
			f.die(t, id)
			r, err := readRecord(f.paths.record(id), f.boot)
			r.Main = number
			if err := errors.Join(err, writeRecord(f.paths.record(id), r), os.Truncate(f.paths.execs(id), 0)); err != nil {
				t.Fatal(err)
			}
			n := f.next(t)
			n.recover(t, 1)
			n.wantEnded(t, id, exitKilled, ReasonLost, "")
		})
	}
}

// TestOverBefore: what is for one command ends where that cannot end any more.
func TestOverBefore(t *testing.T) {
	for name, tt := range map[string]struct {
		r    record
		done bool
		want error
	}{
		"a session":                          {record{}, false, nil},
		"a run, for its caller":              {record{Main: 1}, false, errCallerLeft},
		"a run that has not begun":           {record{MainArgs: []string{"true"}}, false, errCallerLeft},
		"a detached run":                     {record{Main: 1, Detached: true}, false, nil},
		"a detached run that is over":        {record{Main: 1, Detached: true}, true, errMainEnded},
		"a detached run without its command": {record{Main: 2, MainArgs: []string{"true"}, Detached: true}, false, errMainEnded},
		"a detached run that has not begun":  {record{MainArgs: []string{"true"}, Detached: true}, false, errMainEnded},
	} {
		s := &sandbox{record: tt.r}
		e := newExecution(s, execRecord{Number: 1}, nil, nil)
		s.execs = map[uint32]*execution{1: e}
		if tt.done {
			close(e.done)
		}
		if got := s.overBefore(); !errors.Is(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestLoweredMaximum: sandboxes that there are do not go because fewer may be made now.
func TestLoweredMaximum(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for range peer.KeptEnded {
		ids = append(ids, f.commandIn(t, false, "hang"))
	}
	for _, id := range ids {
		f.die(t, id)
	}
	n := f.next(t)
	n.opts.MaxSandboxes = 1
	n.recover(t, peer.KeptEnded)
	_, err := n.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "4 sandboxes have ended")
}

// TestRemovalIsKept: what does not stay when it has ended is not taken for something
// that ended by itself.
func TestRemovalIsKept(t *testing.T) {
	f := newFixture(t)
	f.engine.fail = map[string]error{"delete": errInjected}
	id := f.session(t, plan.CreateRequest{}).ID
	if _, err := f.Remove(callerContext(t), id, true); !errors.Is(err, errInjected) {
		t.Error(err)
	}
	f.engine.fail = nil
	n := f.next(t)
	n.recover(t, 0)
	if left, err := n.Cleanup(callerContext(t), false); err != nil || len(left) != 1 {
		t.Errorf("left %+v, %v", left, err)
	}
}
