package pid1

import (
	"context"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// Signal sends sig to the command's process group and returns when PID 1 has
// done so. It fails with sbxerr.State when the command has ended.
func (e *Exec) Signal(ctx context.Context, sig syscall.Signal) error {
	_, err := e.signal(ctx, sig, initproto.ScopeGroup)
	return err
}

// SignalAll sends sig to every process of the command's session and to all that
// descends from these, and returns how many PID 1 says that were. What left the
// session and whose parent has ended is not among them. With SIGKILL nothing
// escapes by forking meanwhile.
//
// It can also be called when the command has ended and is not released: what it
// left behind in its session is signalled. It fails with sbxerr.State when
// there is nothing to signal.
func (e *Exec) SignalAll(ctx context.Context, sig syscall.Signal) (n int, err error) {
	return e.signal(ctx, sig, initproto.ScopeAll)
}

func (e *Exec) signal(ctx context.Context, sig syscall.Signal, scope initproto.Scope) (int, error) {
	const op = "pid1.signal"
	if sig < 1 || sig > initproto.MaxSignal {
		return 0, sbxerr.New(sbxerr.Config, op, "no such signal: %d", int(sig))
	}
	select {
	case e.signals <- struct{}{}:
	case <-e.c.done:
		return 0, e.c.Err()
	case <-ctx.Done():
		return 0, ctxError(ctx, op, "await previous signal")
	}
	answer, err := e.sendSignal(sig, scope)
	if err != nil {
		return 0, err
	}
	return e.awaitSignal(ctx, sig, answer)
}

func (e *Exec) sendSignal(sig syscall.Signal, scope initproto.Scope) (<-chan initproto.Signaled, error) {
	answer := make(chan initproto.Signaled, 1)
	e.c.mu.Lock()
	if e.state == ended && (scope == initproto.ScopeGroup || e.released) {
		e.c.mu.Unlock()
		<-e.signals
		return nil, signalError(sig, syscall.ESRCH)
	}
	e.unanswered, e.scope = answer, scope
	e.c.mu.Unlock()
	return answer, e.c.send(initproto.Signal{Exec: e.id, Signal: sig, Scope: scope}, parcel{})
}

func (e *Exec) awaitSignal(ctx context.Context, sig syscall.Signal, answer <-chan initproto.Signaled) (int, error) {
	late, stop := e.c.overdue()
	defer stop()
	select {
	case m := <-answer:
		return m.Count, signalError(sig, m.Errno)
	case <-ctx.Done(): // the answer is owed all the same
		go func() { _, _ = e.awaitSignal(context.WithoutCancel(ctx), sig, answer) }()
		return 0, ctxError(ctx, "pid1.signal", "await delivery")
	case <-late:
		return 0, e.c.fail(violation("no answer to a signal for %v", e.c.wait.answer))
	case <-e.c.done:
	}
	select {
	case m := <-answer:
		return m.Count, signalError(sig, m.Errno)
	default:
		return 0, e.c.Err()
	}
}

func signalError(sig syscall.Signal, errno syscall.Errno) error {
	const op = "pid1.signal"
	switch errno {
	case 0:
		return nil
	case syscall.ESRCH:
		return sbxerr.Final(sbxerr.New(sbxerr.State, op, "send signal %d: the command has ended: %w", int(sig), errno))
	case syscall.EAGAIN:
		return sbxerr.New(sbxerr.Init, op, "send signal %d: new processes came faster than they could be found: %w", int(sig), errno)
	}
	return sbxerr.New(sbxerr.Init, op, "send signal %d: %w", int(sig), errno)
}

// Resize tells the command's terminal its size. A command that has ended, or
// has no terminal, has nothing to be told: that is no error.
func (e *Exec) Resize(rows, cols uint16) error {
	return e.tell(initproto.Resize{Exec: e.id, Rows: rows, Cols: cols})
}

// CloseStdin closes the end of the command's input that PID 1 holds. The
// command sees the end when the caller has closed its own too.
func (e *Exec) CloseStdin() error {
	return e.tell(initproto.CloseStdin{Exec: e.id})
}

// Release has PID 1 close what it holds of the command's pipes, and forget the
// command once its end has been reported: what there is to read is read, and the
// exit is kept where it outlives this process. A second call does nothing.
func (e *Exec) Release() error {
	e.c.mu.Lock()
	first := !e.released
	e.released = true
	e.c.forget(e)
	e.c.mu.Unlock()
	if !first {
		return nil
	}
	return e.tell(initproto.Release{Exec: e.id})
}

// tell sends what has no answer.
func (e *Exec) tell(m initproto.Message) error {
	if err := e.c.Err(); err != nil {
		return err
	}
	return e.c.send(m, parcel{})
}
