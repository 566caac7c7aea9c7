package pid1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// Start starts cmd and returns when it runs. The error of a command that
// cannot be started is a *StartError, or that of cmd.Place. Where ctx ends
// first, the command is killed and released should it start after all.
func (c *Client) Start(ctx context.Context, cmd Command) (*Exec, error) {
	const op = "pid1.start"
	if err := cmd.Validate(); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Config, op, err)
	}
	b, err := cmd.encode()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Config, op, err)
	}
	e, err := c.add(cmd)
	if err != nil {
		return nil, err
	}
	if err := c.sendStart(e, cmd, b); err != nil {
		return nil, err
	}
	if cmd.Place != nil {
		if err := e.awaitPlace(ctx, cmd.Place); err != nil {
			return nil, err
		}
	}
	if err := e.awaitStart(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// add remembers cmd. A number that comes again would be ambiguous.
func (c *Client) add(cmd Command) (*Exec, error) {
	const op = "pid1.start"
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case cmd.Number == 0:
		return nil, sbxerr.New(sbxerr.Internal, op, "the command has no number")
	case c.execs[cmd.Number] != nil:
		return nil, sbxerr.New(sbxerr.Internal, op, "the command number %d is taken", cmd.Number)
	}
	e := newExec(c, cmd)
	c.execs[e.id] = e
	return e, nil
}

func (c *Client) sendStart(e *Exec, cmd Command, payload []byte) error {
	const op = "pid1.start"
	p, err := prepare(payload, cmd)
	if err != nil {
		c.drop(e)
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	err = c.send(cmd.message(), p)
	return errors.Join(err, sbxerr.Wrap(sbxerr.Internal, op, p.close()))
}

// parcel is what goes with a message: descriptors, in the order of the fields.
// Those that are bare belong to it.
type parcel struct {
	payload []int      // of a Start: the payload, then the content of input files
	streams []*os.File // the caller's, after the files of its tag
	held    []int
}

func (p parcel) close() error {
	var errs []error
	for _, fd := range append(p.payload, p.held...) {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

func prepare(payload []byte, cmd Command) (_ parcel, err error) {
	_, streams := present(cmd.Stdin, cmd.Stdout, cmd.Stderr)
	if err := unblock(streams); err != nil {
		return parcel{}, err
	}
	fd, err := sealed("caisson-start", payload)
	if err != nil {
		return parcel{}, err
	}
	p := parcel{payload: []int{fd}, streams: slices.Concat(cmd.Tag.files(), streams)}
	if len(cmd.Inputs) > 0 {
		if fd, err = sealed("caisson-input", cmd.inputData()); err != nil {
			return parcel{}, errors.Join(err, p.close())
		}
		p.payload = append(p.payload, fd)
	}
	if p.held, err = duplicates(cmd); err != nil {
		return parcel{}, errors.Join(err, p.close())
	}
	return p, nil
}

// drop forgets an exec of which PID 1 never heard.
func (c *Client) drop(e *Exec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.execs, e.id)
}

// awaitPlace waits until e is there, has it placed and lets it run.
func (e *Exec) awaitPlace(ctx context.Context, place func(context.Context, int) error) error {
	late, stop := e.c.overdue()
	defer stop()
	select {
	case <-e.placed:
	case <-e.answered: // Failed; the caller looks at it
		return nil
	case <-e.c.done:
		return nil // so here
	case <-ctx.Done():
		go e.abandonPlace(context.WithoutCancel(ctx))
		return ctxError(ctx, "pid1.start", "await start")
	case <-late:
		return e.c.fail(violation("no answer to a start for %v", e.c.wait.answer))
	}
	if err := place(ctx, e.PID); err != nil {
		e.abandonPlace(context.WithoutCancel(ctx))
		return placeError(err)
	}
	return e.answerPlaced(initproto.Proceed{Exec: e.id})
}

func placeError(err error) error {
	if sbxerr.Of(err) == sbxerr.Unknown {
		return sbxerr.New(sbxerr.Internal, "pid1.place", "place command: %w", err)
	}
	return fmt.Errorf("place command: %w", err)
}

// answerPlaced sends m, the answer to Placed, unless e has failed since.
func (e *Exec) answerPlaced(m initproto.Message) error {
	e.c.mu.Lock()
	if e.state != waiting {
		e.c.mu.Unlock()
		return nil
	}
	e.state = proceeding
	e.c.mu.Unlock()
	return e.c.send(m, parcel{})
}

// abandonPlace has PID 1 end the start of e once it is there.
func (e *Exec) abandonPlace(ctx context.Context) {
	late, stop := e.c.overdue()
	defer stop()
	select {
	case <-e.placed:
		if e.answerPlaced(initproto.Abandon{Exec: e.id}) == nil {
			e.abandon(ctx)
		}
	case <-e.answered:
	case <-e.c.done:
	case <-late:
		_ = e.c.fail(violation("no answer to a start for %v", e.c.wait.answer))
	}
}

// awaitStart waits for PID 1's answer to the Start of e.
func (e *Exec) awaitStart(ctx context.Context) error {
	late, stop := e.c.overdue()
	defer stop()
	select {
	case <-e.answered:
		return e.startErr
	case <-e.c.done:
		return e.settledStart()
	case <-ctx.Done():
		go e.abandon(context.WithoutCancel(ctx))
		return ctxError(ctx, "pid1.start", "await start")
	case <-late:
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

// abandon kills a command that nobody waits for any more, once it runs, and
// has PID 1 forget it. Each wait is bounded by the client's patience.
func (e *Exec) abandon(ctx context.Context) {
	if e.awaitStart(ctx) != nil {
		return
	}
	_ = e.Signal(ctx, syscall.SIGKILL) // ended by itself, or with the connection
	_ = e.Release()
}
