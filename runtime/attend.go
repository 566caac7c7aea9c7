package runtime

import (
	"cmp"
	"context"
	"io"
	"sync"

	"github.com/caisson-run/caisson/runtime/output"
)

// attend connects a caller with the streams of a command until the command has
// ended and all of its output was delivered, or ctx ends.
func (m *Manager) attend(ctx context.Context, e *execution, o AttachOptions, streams IO) (*Result, error) {
	e.attach()
	defer func() { e.detach(m.attachGrace()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
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
