package runtime

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/sbxerr"
)

// attend connects a caller with the streams of a command until the command has
// ended and all of its output was delivered, or ctx ends.
func (m *Manager) attend(ctx context.Context, e *execution, o AttachOptions, streams IO) (*Result, error) {
	e.attach()
	defer func() { e.detach(m.attachGrace()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if streams.Stdin != nil {
		go m.beside(cancel, func() { m.feed(ctx, e, streams.Stdin) }) // not waited for: the caller may never end its input
	}
	go m.beside(cancel, func() { m.relay(ctx, e, streams) })
	var readers sync.WaitGroup
	var errs [2]error
	for i, from := range []struct {
		store  *output.Store
		offset int64
		to     io.Writer
	}{{e.stdout, o.StdoutOffset, streams.Stdout}, {e.stderr, o.StderrOffset, streams.Stderr}} {
		if from.to != nil {
			readers.Go(func() {
				m.beside(cancel, func() { errs[i] = e.deliver(ctx, from.store, from.to, from.offset) })
			})
		}
	}
	err := e.wait(ctx)
	readers.Wait()
	if err := cmp.Or(err, e.notStarted()); err != nil {
		return nil, err
	}
	return e.result(), nil // a reader that left is the caller's affair: the store keeps the output
}

// deliver copies the stream from offset on, as it comes, up to what the command
// itself wrote: what a child of it writes later is for Logs.
func (e *execution) deliver(ctx context.Context, store *output.Store, w io.Writer, offset int64) error {
	live, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-e.settled:
			stop()
		case <-live.Done():
		}
	}()
	next, err := store.Follow(live, w, offset, true)
	if err == nil || ctx.Err() != nil || live.Err() == nil {
		return err
	}
	_, err = store.Follow(ctx, w, next, false)
	return err
}

// feed copies the caller's input to the command's.
func (m *Manager) feed(ctx context.Context, e *execution, from io.Reader) {
	if _, err := e.begun(ctx); err != nil {
		return // there is nobody to feed
	}
	to := e.input()
	if to == nil {
		return
	}
	write := func(p []byte) (int, error) { return e.writeInput(ctx, to, p) }
	_, err := io.Copy(writerFunc(write), from) // the command may close its end at any time
	if errors.Is(err, ErrInputLeft) {
		return // the caller went away: another may go on
	}
	if err := e.closeInput(); err != nil {
		m.log.Debug("close input", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// writeInput writes what one caller sent to the command's input, in its turn. When
// ctx ends, which is when that caller leaves, it returns ErrInputLeft, also where the
// command reads nothing: what was written stays written, and the next caller's input
// comes behind it.
func (e *execution) writeInput(ctx context.Context, to *os.File, p []byte) (int, error) {
	select {
	case e.feeding <- struct{}{}:
	case <-ctx.Done():
		return 0, ErrInputLeft
	}
	defer func() { <-e.feeding }()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = to.SetWriteDeadline(past) // one that is closed needs none
	})
	n, err := to.Write(p)
	if !stop() {
		<-interrupted
		_ = to.SetWriteDeadline(time.Time{}) // for who has the next turn
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrInputLeft
	}
	return n, err
}

// ErrInputLeft is what IO.Stdin returns where its caller went away before its end: the
// command's input stays open for another caller.
var ErrInputLeft = sbxerr.New(sbxerr.Canceled, "runtime.stdin", "the caller went away before the end of its input")

// relay passes the caller's signals and sizes on, from when the command runs.
func (m *Manager) relay(ctx context.Context, e *execution, streams IO) {
	proc, err := e.begun(ctx)
	if err != nil {
		return // there is nobody to tell
	}
	signals, sizes := streams.Signals, streams.Resizes
	for {
		select {
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			m.signal(ctx, e, sig)
		case size, ok := <-sizes:
			if !ok {
				sizes = nil
				continue
			}
			if err := proc.Resize(size.Rows, size.Cols); err != nil {
				m.log.Debug("resize terminal", "sandbox", e.s.id, "exec", e.number(), "err", err)
			}
		case <-e.done:
			return
		case <-ctx.Done():
			return
		}
	}
}
