package runtime

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/pipes"
)

// execution is one command of a sandbox as this process holds it. What must
// outlive the process is in its record, in its output files, and with PID 1,
// which holds the pipes and the exit until it is told that they are safe.
type execution struct {
	s        *sandbox
	stdout   *output.Store
	stderr   *output.Store
	fills    sync.WaitGroup // which end with filling
	filling  context.Context
	stopFill context.CancelFunc
	open     atomic.Int32 // of pipes, those that something may still write to

	refusedBefore int64 // attempts of the sandbox that were refused before the command; never changes

	concluding bool                // watch has begun to tell how it ended; guarded by s.mu
	leftAlone  bool                // watch left its end to the next daemon; guarded by s.mu
	hits       [countedLimits]bool // limits of the sandbox that it alone can have hit; guarded by s.mu
	heldBack   bool                // by the limit of CPU, for a good part of its time; guarded by s.mu
	lingers    bool                // it is over, and what it left may still write to its pipes; guarded by s.mu

	ending  chan error    // asks watch to end the command, for a reason
	started chan struct{} // closed when it runs; never for one that ended before this daemon, or was never started
	settled chan struct{} // closed when all that the command itself wrote is kept
	done    chan struct{} // closed when the result is known
	kept    chan struct{} // closed when a later daemon would know it too
	drained chan struct{} // closed when nothing can write to its pipes any more
	feeding chan struct{} // full while a caller's input is written to the command's

	mu    sync.Mutex // guards what follows
	proc  *pid1.Exec // nil until started is closed
	stdin *os.File   // the daemon's end; nil where the command has no input, or no more since before this daemon
	// Input passes through staging on its way to stdin; see package staging.
	staging *os.File
	// After the start only the goroutine of watch writes record, with mu held. So watch
	// itself reads it without mu. Fields that never change need no lock.
	record   execRecord
	child    *cgroups.Child // of its own limits; nil without
	tag      *tag           // nil where it has limits of its own, or nothing is left of it
	failure  error          // why it was never started, once that is known
	state    ExecState
	pid      int           // inside the sandbox
	took     time.Duration // to start
	readers  int           // callers that are attached
	parked   places        // where the last caller was, until it comes back or is given up
	logs     int           // readers of the output besides
	orphaned *time.Timer
	ended    map[int]bool  // processes of it that were ended, by host PID, itself among them
	inputEnd bool          // the input was closed
	unread   chan struct{} // closed when nobody reads; nil while nobody waits for that
}

func newExecution(s *sandbox, r execRecord, stdout, stderr *output.Store) *execution {
	filling, stopFill := context.WithCancel(context.Background())
	return &execution{
		filling: filling, stopFill: stopFill, s: s, record: r, stdout: stdout, stderr: stderr, state: ExecStarting,
		ending: make(chan error, 1), started: make(chan struct{}), settled: make(chan struct{}), done: make(chan struct{}), kept: make(chan struct{}), drained: make(chan struct{}),
		feeding: make(chan struct{}, 1),
	}
}

func (e *execution) number() uint32 { return e.record.Number } // never changes

// group returns the command's own cgroup, nil where it has no limits of its own.
func (e *execution) group() *cgroups.Child {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.child
}

func (e *execution) setGroup(child *cgroups.Child) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.child = child
}

// end asks for the end of the command. The first reason counts.
func (e *execution) end(cause error) {
	select {
	case e.ending <- cause:
	default:
	}
}

// result returns how the command ended, nil while it has not.
func (e *execution) result() *Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.Result
}

// notStarted returns why the command was never started, nil where it was or may be.
func (e *execution) notStarted() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failure
}

func (e *execution) info() ExecInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.record
	info := ExecInfo{
		ID: number(r.Number), SandboxID: e.s.id, Args: r.Args, State: e.state, PID: e.pid, TTY: r.TTY,
		Stdin: e.stdin != nil && !e.inputEnd, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Result: r.Result,
	}
	if r.Result != nil {
		info.StdoutBytes, info.StderrBytes = r.Result.StdoutBytes, r.Result.StderrBytes
		return info
	}
	info.StdoutBytes, _ = e.stdout.Total()
	info.StderrBytes, _ = e.stderr.Total()
	return info
}

// fillLocked keeps what the command writes, until the last writer is gone.
func (e *execution) fillLocked(store *output.Store, pipe *os.File) {
	e.open.Add(1)
	e.fills.Go(func() {
		_ = store.Fill(e.filling, pipe) // ends with the last writer; the store knows what it could not keep
		store.Finish()
		_ = pipe.Close() // nothing is written to this end
		e.hungUp()
	})
}

// hungUp notes that one pipe has no writer any more.
func (e *execution) hungUp() {
	if e.open.Add(-1) == 0 {
		close(e.drained)
	}
}

// closeInput ends the command's input, here and with PID 1, which holds a copy. A command
// that ended before this daemon has no process.
func (e *execution) closeInput() error {
	e.mu.Lock()
	ended, proc := e.inputEnd, e.proc
	e.inputEnd = true
	e.mu.Unlock()
	if ended || proc == nil {
		return nil
	}
	return errors.Join(e.hangUpInput(), proc.CloseStdin())
}

// stopFilling lets go of pipes that a process may still hold open.
func (e *execution) stopFilling() {
	e.stopFill()
	e.fills.Wait()
}

// read notes a reader of the output besides those that are attached, until the
// returned function is called. It does not keep the command alive.
func (e *execution) read() (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.logs++
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.logs--
		e.leftLocked()
	})
}

func (e *execution) leftLocked() {
	if e.readers+e.logs == 0 && e.unread != nil {
		close(e.unread)
		e.unread = nil
	}
}

// left returns what is closed when nobody reads the output any more.
func (e *execution) left() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unread == nil {
		e.unread = make(chan struct{})
	}
	left := e.unread
	e.leftLocked()
	return left
}

// close releases what only this process holds of a command that is over.
func (e *execution) close() error {
	e.stopFilling()
	e.mu.Lock()
	if e.orphaned != nil {
		e.orphaned.Stop()
	}
	if e.tag != nil {
		e.tag.close()
	}
	e.mu.Unlock()
	return errors.Join(e.hangUpInput(), e.stdout.Close(), e.stderr.Close())
}

// hangUpInput closes the daemon's ends of the command's input.
func (e *execution) hangUpInput() error {
	stdin, staging := e.input()
	return ignoreClosed(pipes.Close(stdin, staging))
}

// wait returns when the command is done or ctx ends.
func (e *execution) wait(ctx context.Context) error { return wait(ctx, e.done) }

func (e *execution) isDone() bool { return isClosed(e.done) }
