package runtime

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// take goes on with a command that PID 1 has started, for this daemon or for an
// earlier one, and holds: because it runs, or because what it left may write.
func (e *execution) take(h pid1.Held) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.proc, e.pid, e.stdin, e.staging = h.Exec, h.Exec.PID, h.Stdin, h.Staging
	if e.record.Result == nil {
		e.state = ExecRunning
	}
	e.inputEnd = h.Stdin == nil || h.Staging == nil
	e.open.Add(1) // so that it is not drained before all of its pipes are there
	defer e.hungUp()
	for _, stream := range []struct {
		store *output.Store
		pipe  *os.File
	}{{e.stdout, h.Stdout}, {e.stderr, h.Stderr}} {
		if stream.pipe == nil {
			stream.store.Finish()
			continue
		}
		e.fillLocked(stream.store, stream.pipe)
	}
	close(e.started)
}

// process returns the command as PID 1 knows it: nil where it is not, or not yet.
func (e *execution) process() *pid1.Exec {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.proc
}

// input returns the daemon's end of the command's input and its staging pipe, nil where
// there is none.
func (e *execution) input() (stdin, staging *os.File) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stdin, e.staging
}

// begun is process for what is said to a command. Others know of a command from
// its admission on: what they say while it is being started waits for it.
func (e *execution) begun(ctx context.Context) (*pid1.Exec, error) {
	select {
	case <-e.started:
	case <-e.done:
	case <-ctx.Done():
		return nil, sbxerr.New(sbxerr.Canceled, "runtime.begun", "command %d is being started: %w", e.number(), context.Cause(ctx))
	}
	if proc := e.process(); proc != nil {
		return proc, nil
	}
	if err := e.notStarted(); err != nil {
		return nil, err
	}
	return nil, sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.begun", "command %d of sandbox %s has ended", e.number(), e.s.kept().Name))
}

// fail notes why the command was not started, for those who wait for it. That the
// caller went away who wanted it started is an end of that one's call, not of theirs.
func (e *execution) fail(err error) {
	code := sbxerr.Of(err)
	if code == sbxerr.Canceled {
		code = sbxerr.State
	}
	err = sbxerr.Final(sbxerr.New(code, "runtime.exec", "command %d of sandbox %s was not started: %w", e.number(), e.s.kept().Name, err))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failure = err
}
