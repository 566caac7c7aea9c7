package runtime

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// start starts a detached script.
func (f *fixture) start(t testing.TB, r plan.Request) Info {
	t.Helper()
	info, err := f.Start(callerContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// over waits for the end of a detached command.
func (f *fixture) over(t testing.TB, id string) Info {
	t.Helper()
	s, err := f.find(callerContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the end of the command", s.ended)
	return s.info()
}

// runs is a Run in the background.
type runs struct {
	result *Result
	err    error
}

func (f *fixture) runInBackground(ctx context.Context, r plan.Request, io IO) <-chan runs {
	done := make(chan runs, 1)
	go func() {
		result, err := f.Run(ctx, r, io)
		done <- runs{result, err}
	}()
	return done
}

func TestRemove(t *testing.T) {
	f := newFixture(t)
	_, err := f.Remove(callerContext(t), "nobody", true)
	errtest.Want(t, err, sbxerr.NotFound, `no sandbox "nobody"`)

	info := f.start(t, request("hang"))
	_, err = f.Remove(callerContext(t), info.ID, false)
	errtest.Want(t, err, sbxerr.State, "is running")
	if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "caisson rm --force "+info.ID) {
		t.Errorf("remedy %q", remedy)
	}
	if id, err := f.Remove(callerContext(t), info.ID[:6], true); err != nil || id != info.ID {
		t.Errorf("removed %q, %v", id, err)
	}
	f.wantNothingLeft(t)

	info = f.start(t, request("exit:4"))
	f.over(t, info.ID)
	if _, err := f.Remove(callerContext(t), info.Name, false); err != nil {
		t.Errorf("remove an exited sandbox: %v", err)
	}
	f.wantNothingLeft(t)
}

func TestRemoveEndsARun(t *testing.T) {
	f := newFixture(t)
	started := make(chan Info, 1)
	done := f.runInBackground(callerContext(t), request("hang"), IO{Started: func(i Info, _ ExecInfo) { started <- i }})
	info := within(t, "the start", started)
	if _, err := f.Remove(callerContext(t), info.ID, true); err != nil {
		t.Fatal(err)
	}
	f.wantNothingLeft(t) // when Remove has returned, not only soon
	r := within(t, "the end of the run", done)
	if r.err != nil || r.result.Reason != ReasonCanceled || r.result.Cause != CauseRemoved || r.result.Source != "runtime" {
		t.Errorf("the run: %+v, %v", r.result, r.err)
	}
}

// TestRemoveEndsWhatIsBeingMade ends a sandbox at a moment when no command
// could have been told: while a stage waits, and right after the last stage.
func TestRemoveEndsWhatIsBeingMade(t *testing.T) {
	t.Run("in a stage", func(t *testing.T) {
		f := newFixture(t)
		reached := make(chan string, 1)
		f.replace(stage{name: "start", create: func(ctx context.Context, s *sandbox) error {
			reached <- s.plan.ID
			<-ctx.Done()
			return ctx.Err()
		}})
		done := f.runInBackground(callerContext(t), request("hang"), IO{})
		if _, err := f.Remove(callerContext(t), within(t, "the stage", reached), true); err != nil {
			t.Error(err)
		}
		r := within(t, "the end of the run", done)
		errtest.Want(t, r.err, sbxerr.Canceled, ErrRemoved.Error())
	})
	for _, detached := range []bool{false, true} {
		f := newFixture(t)
		f.replace(stage{name: "posture", create: func(_ context.Context, s *sandbox) error {
			s.end(ErrRemoved)
			s.end(errInjected) // the first reason counts
			return nil
		}})
		if !detached {
			r := within(t, "the end of the run", f.runInBackground(callerContext(t), request("hang"), IO{}))
			errtest.Want(t, r.err, sbxerr.Canceled, ErrRemoved.Error())
			continue
		}
		_, err := f.Start(callerContext(t), request("hang"))
		errtest.Want(t, err, sbxerr.Canceled, ErrRemoved.Error())
	}
}

func TestRemoveTwiceAtOnce(t *testing.T) {
	f := newFixture(t)
	info := f.start(t, request("hang"))
	j := &ledger{failOnRemove: "claim"}
	j.watch(f)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := f.Remove(callerContext(t), info.ID, true)
			if !errors.Is(err, errInjected) && !errors.Is(err, sbxerr.NotFound) {
				t.Errorf("one of several: %v", err)
			}
		})
	}
	wg.Wait()
	claims := 0
	for _, what := range j.removed() {
		if what == "remove claim" {
			claims++
		}
	}
	if claims != 1 {
		t.Errorf("the claim was removed %d times", claims)
	}
	j.failOnRemove = ""
	if _, err := f.Cleanup(callerContext(t), false); err != nil {
		t.Error(err)
	}
}

func TestRemoveGivesUpWithItsCaller(t *testing.T) {
	f := newFixture(t)
	hold, reached := make(chan struct{}), make(chan string, 1)
	f.replace(stage{name: "posture", create: func(_ context.Context, s *sandbox) error {
		reached <- s.plan.ID
		<-hold // as a mount would, deaf to the context
		return nil
	}})
	done := f.runInBackground(callerContext(t), request("hang"), IO{})
	ctx, cancel := context.WithCancelCause(callerContext(t))
	cancel(errInjected)
	_, err := f.Remove(ctx, within(t, "the stage", reached), true)
	errtest.Want(t, err, sbxerr.Canceled, "injected")
	close(hold)
	within(t, "the end of the run", done)
}

func TestLogs(t *testing.T) {
	f := newFixture(t)
	info := f.start(t, request("out:one", "err:two", "await:10", "out:three"))
	ctx := callerContext(t)
	errtest.Want(t, f.Logs(ctx, "nobody", LogOptions{}, nil, nil), sbxerr.NotFound)
	errtest.Want(t, f.Logs(ctx, info.ID, LogOptions{Stream: "stdin"}, nil, nil), sbxerr.Config, `stream "stdin" is none of stdout, stderr`)

	seen := make(chan string, 4)
	followed := make(chan error, 1)
	var stderr bytes.Buffer
	go func() {
		followed <- f.Logs(ctx, info.ID, LogOptions{Follow: true}, writer(func(p []byte) { seen <- string(p) }), &stderr)
	}()
	if got := within(t, "the first line", seen); got != "one" {
		t.Errorf("followed %q", got)
	}
	f.engine.poke(t, info.ID)
	if got := within(t, "the second line", seen); got != "three" {
		t.Errorf("followed %q", got)
	}
	if err := within(t, "the end of the log", followed); err != nil || stderr.String() != "two" {
		t.Errorf("stderr %q, %v", stderr.String(), err)
	}
	f.over(t, info.ID)
	var out, none bytes.Buffer
	if err := f.Logs(ctx, info.ID, LogOptions{Stream: "stdout"}, &out, &none); err != nil || out.String() != "onethree" || none.Len() > 0 {
		t.Errorf("logs of an exited sandbox: %q, %q, %v", out.String(), none.String(), err)
	}
}

// writer calls a function for each write.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestClose(t *testing.T) {
	f := newFixture(t)
	started := make(chan Info, 1)
	running := f.runInBackground(callerContext(t), request("hang"), IO{Started: func(i Info, _ ExecInfo) { started <- i }})
	within(t, "the start", started)
	f.start(t, request("hang"))
	exited := f.start(t, request("exit:0"))
	f.over(t, exited.ID)
	reached := make(chan string, 1)
	f.replace(stage{name: "start", create: func(ctx context.Context, s *sandbox) error {
		reached <- s.plan.ID
		<-ctx.Done()
		return ctx.Err()
	}})
	making := f.runInBackground(callerContext(t), request("hang"), IO{})
	within(t, "the stage", reached)

	if err := f.drain(callerContext(t)); err != nil {
		t.Error(err)
	}
	f.wantNothingLeft(t)
	if r := within(t, "the end of the run", running); r.err != nil || r.result.Reason != ReasonCanceled || r.result.Cause != CauseDaemon {
		t.Errorf("the run: %+v, %v", r.result, r.err)
	}
	if r := within(t, "the end of the creation", making); !errors.Is(r.err, ErrStopping) {
		t.Errorf("the creation: %v", r.err)
	}
	_, err := f.Run(callerContext(t), request("exit:0"), IO{})
	errtest.Want(t, err, sbxerr.State, "the daemon is stopping")
	if list, _ := f.List(callerContext(t)); len(list) > 0 {
		t.Errorf("listed: %+v", list)
	}
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	f := newFixture(t)
	hold, reached := make(chan struct{}), make(chan string, 1)
	f.replace(stage{name: "posture", create: func(_ context.Context, s *sandbox) error {
		reached <- s.plan.ID
		<-hold
		return nil
	}})
	done := f.runInBackground(callerContext(t), request("hang"), IO{})
	within(t, "the stage", reached)
	ctx, cancel := context.WithCancelCause(callerContext(t))
	cancel(errInjected)
	err := f.drain(ctx)
	if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "wait for 1 sandboxes to end") {
		t.Errorf("drain: %v", err)
	}
	close(hold)
	within(t, "the end of the run", done)
}
