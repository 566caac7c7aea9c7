package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// relay passes the signals that this process gets on to the command. The first
// SIGINT or SIGTERM is the command's to act on; a second one, or the end of the
// grace, ends the call. Before the command runs, the first one does.
type relay struct {
	caught  chan os.Signal
	forward chan syscall.Signal
	running atomic.Bool
	grace   time.Duration
	cancel  context.CancelCauseFunc

	consequence string // of cancel, for the message
}

// interruption is why a run was cancelled.
type interruption struct {
	signal syscall.Signal
	reason string
	then   string
}

func (i *interruption) Error() string {
	return fmt.Sprintf("%s %s: %s", unix.SignalName(i.signal), i.reason, i.then)
}

// newRelay starts to catch signals. cancel is called to end the call, with the
// consequence.
func newRelay(grace time.Duration, consequence string, cancel context.CancelCauseFunc) *relay {
	r := &relay{
		caught:  make(chan os.Signal, 16),
		forward: make(chan syscall.Signal),
		grace:   grace,
		cancel:  cancel,

		consequence: consequence,
	}
	signal.Notify(r.caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	return r
}

func (r *relay) stop() { signal.Stop(r.caught) }

// started says that there is a command now which signals can reach.
func (r *relay) started() { r.running.Store(true) }

// run relays until ctx ends or it has cancelled the run.
func (r *relay) run(ctx context.Context) {
	var first syscall.Signal
	var grace <-chan time.Time // nil until the first ending signal
	for {
		select {
		case <-ctx.Done():
			return
		case <-grace:
			r.cancel(&interruption{first, fmt.Sprintf("did not end the command within %v", r.grace), r.consequence})
			return
		case s := <-r.caught:
			sig, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			ends := sig == syscall.SIGINT || sig == syscall.SIGTERM
			if ends && !r.running.Load() {
				r.cancel(&interruption{sig, "came before the command ran", r.consequence})
				return
			}
			if ends && first != 0 {
				r.cancel(&interruption{sig, "came a second time", r.consequence})
				return
			}
			if ends {
				first, grace = sig, time.After(r.grace)
			}
			r.pass(ctx, sig)
		}
	}
}

// pass hands sig to the client. Signals before the command runs, other than
// those that end it, are nobody's.
func (r *relay) pass(ctx context.Context, sig syscall.Signal) {
	if !r.running.Load() {
		return
	}
	select {
	case r.forward <- sig:
	case <-ctx.Done():
	}
}

// explain makes err the outcome of an interrupted run, if this one was.
func (r *relay) explain(ctx context.Context, err error) error {
	var why *interruption
	if !errors.As(context.Cause(ctx), &why) {
		return err
	}
	return &exitError{exitSignal + int(why.signal), sbxerr.Wrap(sbxerr.Canceled, "caisson.run", why)}
}
