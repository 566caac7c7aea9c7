package runtime

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/caisson-run/caisson/runtime/output"
)

// places are where a caller stands in the streams of a command, which waits for it.
type places struct{ stdout, stderr *output.Hold }

func (e *execution) hold(o AttachOptions) places {
	return places{e.stdout.Hold(o.StdoutOffset), e.stderr.Hold(o.StderrOffset)}
}

func (p places) release() {
	for _, h := range []*output.Hold{p.stdout, p.stderr} {
		if h != nil {
			h.Release()
		}
	}
}

// attach notes a caller at the command's streams, until detach. A command that was
// started for its caller has one from the beginning.
func (e *execution) attach(o AttachOptions) places {
	p := e.hold(o)
	e.mu.Lock()
	e.readers++
	if e.orphaned != nil {
		e.orphaned.Stop()
		e.orphaned = nil
	}
	e.mu.Unlock()
	e.unpark().release()
	return p
}

// unpark returns the places of the caller that is awaited.
func (e *execution) unpark() (p places) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, e.parked = e.parked, p
	return p
}

// detach notes that a caller left. One for which the command was started, and that has
// not had all (left says why), may come back within grace: the command waits where it
// was.
func (e *execution) detach(p places, left error, grace time.Duration) {
	e.mu.Lock()
	e.readers--
	if e.readers == 0 && !e.record.Detached && left != nil {
		p, e.parked = e.parked, p
		e.orphanLocked(grace)
	}
	e.leftLocked()
	e.mu.Unlock()
	p.release()
}

// orphanLocked gives the caller up, and ends the command, in grace unless somebody
// attaches before.
func (e *execution) orphanLocked(grace time.Duration) {
	e.orphaned = time.AfterFunc(grace, func() {
		e.end(errCallerGone)
		e.unpark().release()
	})
}

// errCallerGone is the cause with which a command is ended whose caller does not
// come back.
var errCallerGone = errors.New("its caller went away")

// attend passes the streams of a command on from the places of its caller, until the
// command has ended and all of its output was delivered, or ctx ends. Left is why the
// caller has not had all; the store keeps it.
func (h *host) attend(ctx context.Context, e *execution, p places, streams IO) (r *Result, left, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers sync.WaitGroup
	var errs [2]error
	for i, from := range []struct {
		place *output.Hold
		to    io.Writer
	}{{p.stdout, streams.Stdout}, {p.stderr, streams.Stderr}} {
		if from.to == nil {
			from.place.Release()
			continue
		}
		readers.Go(func() {
			h.beside(cancel, func() { errs[i] = e.deliver(ctx, from.place, from.to) })
		})
	}
	err = e.wait(ctx)
	readers.Wait()
	if err := cmp.Or(err, e.notStarted()); err != nil {
		return nil, err, err
	}
	return e.result(), errors.Join(errs[:]...), nil
}

// deliver copies the stream as it comes, up to what the command itself wrote: what a
// child of it writes later is for Logs.
func (e *execution) deliver(ctx context.Context, place *output.Hold, w io.Writer) error {
	live, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-e.settled:
			stop()
		case <-live.Done():
		}
	}()
	err := place.Follow(live, w, true)
	if err == nil || ctx.Err() != nil || live.Err() == nil {
		return err
	}
	return place.Follow(ctx, w, false)
}

// attendMain returns when the command of a sandbox that is for it has ended, which it does
// when ctx ends.
func (h *host) attendMain(ctx context.Context, s *sandbox, e *execution, streams IO) (*Result, error) {
	stop := context.AfterFunc(ctx, func() { s.end(errCallerLeft) })
	defer stop()
	if streams.Stdin != nil {
		go h.sendGiven(ctx, e, streams.Stdin)
	}
	if streams.Started != nil {
		streams.Started(s.info(), e.info())
	}
	p := e.unpark()
	result, _, err := h.attend(context.WithoutCancel(ctx), e, p, streams)
	e.detach(p, nil, 0)
	return result, err
}
