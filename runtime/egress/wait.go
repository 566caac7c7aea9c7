package egress

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxTries is how many processes may end over one request.
const maxTries = 3

// with calls fn, while nobody else changes anything, with the process that
// serves; again with the next one if it ends meanwhile.
func (g *Gateway) with(ctx context.Context, op string, fn func(*link) error) error {
	var err error
	for range maxTries {
		if err = g.once(ctx, op, fn); !errors.Is(err, errGone) {
			return err
		}
	}
	return sbxerr.Wrap(sbxerr.Gateway, op, err)
}

func (g *Gateway) once(ctx context.Context, op string, fn func(*link) error) error {
	l, err := g.await(ctx, op)
	if err != nil {
		return err
	}
	if err := g.acquire(ctx, op); err != nil {
		return err
	}
	defer g.release()
	if g.current() != l {
		return errGone
	}
	return fn(l)
}

// await returns the process that serves, and has one started if there is none.
// It waits for one that is being started, but not for one that could not be.
func (g *Gateway) await(ctx context.Context, op string) (*link, error) {
	for first := true; ; first = false {
		g.mu.Lock()
		l, failure, changed := g.link, g.failure, g.changed
		switch {
		case g.closed:
			g.mu.Unlock()
			return nil, errClosed(op)
		case l != nil && !l.isGone():
			g.mu.Unlock()
			return l, nil
		case failure != nil && (g.running != nil || !first):
			g.mu.Unlock()
			return nil, fmt.Errorf("start the gateway: %w", failure)
		case g.running == nil:
			g.begin()
		}
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ended(ctx, op)
		}
	}
}

// begin starts the supervisor. The caller holds g.mu.
func (g *Gateway) begin() {
	g.failure = nil
	g.running = make(chan struct{})
	go g.supervise(g.running)
}

func errClosed(op string) error {
	return sbxerr.New(sbxerr.Gateway, op, "the gateway was closed with the daemon")
}

func ended(ctx context.Context, op string) error {
	return sbxerr.Wrap(sbxerr.Gateway, op, fmt.Errorf("wait for the gateway: %w", context.Cause(ctx)))
}

// acquire makes the caller the only one that changes anything.
func (g *Gateway) acquire(ctx context.Context, op string) error {
	select {
	case g.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx, op)
	}
}

func (g *Gateway) release() { <-g.op }

func (g *Gateway) current() *link {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.link
}

// serving makes p the process that serves.
func (g *Gateway) serving(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.link, g.failure = p.link, nil
	g.status = Status{PID: p.cmd.Process.Pid, Starts: g.status.Starts + 1}
	g.announce()
}

// down says that none does; failure is why one could not be started.
func (g *Gateway) down(failure error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.link, g.failure, g.status.PID = nil, failure, 0
	g.loseOpen()
	g.announce()
}

// announce wakes who waits for a change. The caller holds g.mu.
func (g *Gateway) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}
