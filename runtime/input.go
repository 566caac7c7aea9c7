package runtime

import (
	"context"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/staging"
)

// InputRequest is a part of a command's input.
type InputRequest struct {
	// Offset is that of the first byte of Data in the whole input. Bytes that the command
	// has are not sent again. Nil: Data comes after those.
	Offset *int64
	Data   []byte
	Close  bool // the input ends after Data
}

// InputState is how far the input of a command is.
type InputState struct {
	Offset int64 // bytes that the command has
	Closed bool  // by the caller, by the command, or because that has ended
}

// SendInput writes to the input of a command and returns when its pipe has taken all
// of it. Callers take turns. Where the command closed its input, the rest is dropped.
func (m *Manager) SendInput(ctx context.Context, ref, exec string, r InputRequest) (InputState, error) {
	defer m.Busy()()
	s, e, err := m.findExec(ctx, ref, exec)
	if err != nil {
		return InputState{}, err
	}
	if !e.record.Stdin {
		return InputState{}, sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.input", "command %s of sandbox %s was started without an input", exec, ref))
	}
	defer s.keeper.Awake(ctx)()
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	if _, err := e.begun(ctx); err != nil && !e.isDone() {
		return InputState{}, err
	}
	return m.sendInput(ctx, e, r)
}

// sendGiven writes input that a command was started with, until ctx ends: the daemon
// keeps no input of callers that are gone. Such a caller sends the rest with SendInput,
// from offset 0.
func (h *host) sendGiven(ctx context.Context, e *execution, data []byte) {
	if _, err := e.begun(ctx); err != nil {
		return // it never ran
	}
	if _, err := h.sendInput(ctx, e, InputRequest{Data: data, Close: true}); err != nil && ctx.Err() == nil {
		h.log.Warn("send input", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

func (h *host) sendInput(ctx context.Context, e *execution, r InputRequest) (InputState, error) {
	select {
	case e.feeding <- struct{}{}:
	case <-ctx.Done():
		return InputState{}, sbxerr.Wrap(sbxerr.Canceled, "runtime.input", context.Cause(ctx))
	}
	defer func() { <-e.feeding }()
	stdin, staged := e.input()
	count, err := staging.Open(h.paths.input(e.s.id, e.number()), staged)
	if err != nil && e.isInputClosed() { // which closed the staging pipe
		count, err = staging.Open(h.paths.input(e.s.id, e.number()), nil)
	}
	if err != nil {
		return InputState{}, sbxerr.Wrap(sbxerr.StateDir, "runtime.input", err)
	}
	defer count.Close()
	data, err := count.Rest(r.Offset, r.Data)
	if err != nil {
		return InputState{}, err
	}
	closed := e.isInputClosed()
	if !closed && len(data) > 0 {
		closed, err = count.Write(ctx, stdin, data)
	}
	if err != nil && e.isInputClosed() { // the command ended meanwhile
		closed, err = true, nil
	}
	if err == nil && (closed || r.Close) {
		closed, err = true, e.closeInput()
	}
	if err != nil && sbxerr.Of(err) == sbxerr.Unknown {
		err = sbxerr.Wrap(sbxerr.Init, "runtime.input", err)
	}
	return InputState{Offset: count.Taken(), Closed: closed}, err
}

// inputOf is how many bytes of input a command has. It is less while some are moved.
func (h *host) inputOf(e *execution) int64 {
	if !e.record.Stdin {
		return 0
	}
	_, staged := e.input()
	taken, _ := staging.Read(h.paths.input(e.s.id, e.number()), staged) // there is none yet, or no more
	return taken
}

// isInputClosed reports whether nothing can be written to the command any more.
func (e *execution) isInputClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stdin == nil || e.inputEnd || e.record.Result != nil
}

// ResizeExec changes the size of a command's terminal, once it runs.
func (m *Manager) ResizeExec(ctx context.Context, ref, exec string, size plan.WinSize) error {
	s, e, err := m.findExec(ctx, ref, exec)
	if err != nil {
		return err
	}
	if !e.record.TTY {
		return sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.resize", "command %s of sandbox %s has no terminal", exec, ref))
	}
	defer s.keeper.Awake(ctx)()
	proc, err := e.begun(ctx)
	if err != nil {
		return err
	}
	return proc.Resize(size.Rows, size.Cols)
}
