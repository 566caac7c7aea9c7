package pid1

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/sbxerr"
)

// Exec is a command that was started.
type Exec struct {
	// PID is the command's in the sandbox's pid namespace, by PID 1's word: to
	// be shown, never to be signalled from the host.
	PID int

	c        *Client
	id       uint32
	name     string // the command's Args[0] and Cwd, for errors
	cwd      string
	answered chan struct{} // closed when PID 1 answered the Start
	exited   chan struct{} // closed when it reported the end
	signals  chan struct{} // holds one token while a Signal is unanswered

	// Guarded by c.mu; read without it once the channel above says so.
	state      state
	startErr   error
	exit       Exit
	unanswered chan syscall.Errno // where the answer to the Signal goes
}

// state is where a command stands, by PID 1's reports.
type state uint8

const (
	asked state = iota
	running
	ended
)

// Exit is how a command ended, by PID 1's word.
type Exit struct {
	Code        int            // 0 to 255; 0 if a signal ended the command
	Signal      syscall.Signal // 0: none
	User        time.Duration  // CPU time of the command and the children that it waited for
	System      time.Duration
	MaxRSSBytes int64 // of the largest of these
	// Remaining counts the processes that went on running in the sandbox, as
	// the command ended, and belong to the session of no other running command.
	// -1: PID 1 could not count them.
	Remaining int
}

func newExec(c *Client, id uint32, cmd Command) *Exec {
	return &Exec{
		c: c, id: id, name: cmd.Args[0], cwd: cmd.Cwd,
		answered: make(chan struct{}),
		exited:   make(chan struct{}),
		signals:  make(chan struct{}, 1),
	}
}

// awaitStart waits for PID 1's answer to the Start of e.
func (e *Exec) awaitStart(ctx context.Context) error {
	timer := time.NewTimer(e.c.wait.answer)
	defer timer.Stop()
	select {
	case <-e.answered:
		return e.startErr
	case <-e.c.done:
		return e.settledStart()
	case <-ctx.Done():
		go e.abandon(context.WithoutCancel(ctx))
		return ctxError(ctx, "pid1.start", "await start")
	case <-timer.C:
		return e.c.fail(violation("no answer to a start for %v", e.c.wait.answer))
	}
}

// settledStart is for when the connection ended: the answer may have come
// before, and both are ready at once.
func (e *Exec) settledStart() error {
	select {
	case <-e.answered:
		return e.startErr
	default:
		return e.c.Err()
	}
}

// abandon kills a command that nobody waits for any more, once it runs. Both
// waits are bounded by the client's patience.
func (e *Exec) abandon(ctx context.Context) {
	if e.awaitStart(ctx) == nil {
		_ = e.Signal(ctx, syscall.SIGKILL) // ended by itself, or with the connection
	}
}

// Wait waits until the command has ended. The error says that ctx ended or
// that the connection did, in which case nothing is known of the command.
func (e *Exec) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-e.exited:
		return e.exit, nil
	case <-ctx.Done():
		return Exit{}, ctxError(ctx, "pid1.wait", "await exit")
	case <-e.c.done:
	}
	select {
	case <-e.exited: // said before the end
		return e.exit, nil
	default:
		return Exit{}, e.c.Err()
	}
}

// Signal sends sig to the command's process group and returns when PID 1 has
// done so. It fails with sbxerr.State when the command has ended.
func (e *Exec) Signal(ctx context.Context, sig syscall.Signal) error {
	const op = "pid1.signal"
	if sig < 1 || sig > initproto.MaxSignal {
		return sbxerr.New(sbxerr.Config, op, "no such signal: %d", int(sig))
	}
	select {
	case e.signals <- struct{}{}:
	case <-e.c.done:
		return e.c.Err()
	case <-ctx.Done():
		return ctxError(ctx, op, "await previous signal")
	}
	answer, err := e.sendSignal(sig)
	if err != nil {
		return err
	}
	return e.awaitSignal(ctx, sig, answer)
}

func (e *Exec) sendSignal(sig syscall.Signal) (<-chan syscall.Errno, error) {
	answer := make(chan syscall.Errno, 1)
	e.c.mu.Lock()
	if e.state == ended {
		e.c.mu.Unlock()
		<-e.signals
		return nil, signalError(sig, syscall.ESRCH)
	}
	e.unanswered = answer
	e.c.mu.Unlock()
	return answer, e.c.send(initproto.Signal{Exec: e.id, Signal: sig}, nil)
}

func (e *Exec) awaitSignal(ctx context.Context, sig syscall.Signal, answer <-chan syscall.Errno) error {
	timer := time.NewTimer(e.c.wait.answer)
	defer timer.Stop()
	select {
	case errno := <-answer:
		return signalError(sig, errno)
	case <-ctx.Done():
		return ctxError(ctx, "pid1.signal", "await delivery")
	case <-timer.C:
		return e.c.fail(violation("no answer to a signal for %v", e.c.wait.answer))
	case <-e.c.done:
	}
	select {
	case errno := <-answer:
		return signalError(sig, errno)
	default:
		return e.c.Err()
	}
}

func signalError(sig syscall.Signal, errno syscall.Errno) error {
	const op = "pid1.signal"
	switch errno {
	case 0:
		return nil
	case syscall.ESRCH:
		return sbxerr.New(sbxerr.State, op, "send signal %d: the command has ended: %w", int(sig), errno)
	}
	return sbxerr.New(sbxerr.Init, op, "send signal %d: %w", int(sig), errno)
}

// ctxError says what was being waited for when ctx, the caller's, ended.
func ctxError(ctx context.Context, op, what string) error {
	code := sbxerr.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = sbxerr.Deadline
	}
	return sbxerr.New(code, op, "%s: %w", what, context.Cause(ctx))
}
