package execs

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

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// relayed are the signals that a command gets instead of us.
var relayed = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// pendingSignals is how many signals wait until the daemon has taken those before.
const pendingSignals = 64

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
	remedy      string // where the usual one is none
	detaches    bool   // SIGHUP, of a terminal that was closed, ends the call alone
	background  bool   // the daemon does not end the command with the call
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

// newRelay starts to catch signals, for as long as the program lasts: to stop that for
// one signal after the other takes the runtime a quarter of a millisecond. cancel is
// called to end the call, with the consequence.
func newRelay(grace time.Duration, consequence string, cancel context.CancelCauseFunc) *relay {
	r := &relay{
		caught:  make(chan os.Signal, 16),
		forward: make(chan syscall.Signal, pendingSignals),
		grace:   grace,
		cancel:  cancel,

		consequence: consequence,
	}
	signal.Notify(r.caught, relayed...)
	return r
}

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
			r.end(first, fmt.Sprintf("did not end the command within %v", r.grace))
			return
		case s := <-r.caught:
			sig, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			if sig == syscall.SIGHUP && r.detaches {
				r.end(sig, "closed the terminal")
				return
			}
			ends := sig == syscall.SIGINT || sig == syscall.SIGTERM
			if ends && !r.running.Load() {
				r.end(sig, "came before the command ran")
				return
			}
			if ends && first != 0 {
				r.end(sig, "came a second time")
				return
			}
			if ends {
				first, grace = sig, time.After(r.grace)
			}
			r.pass(sig)
		}
	}
}

// end cancels the call. The next signal ends the program, whatever it waits for.
func (r *relay) end(sig syscall.Signal, reason string) {
	r.cancel(&interruption{sig, reason, r.consequence})
	signal.Reset(relayed...)
}

// pass hands sig to the client. Signals before the command runs, other than those
// that end it, are nobody's; and those beyond what may wait for a command that is
// frozen are dropped, as the kernel does with a second one of a kind.
func (r *relay) pass(sig syscall.Signal) {
	if !r.running.Load() {
		return
	}
	select {
	case r.forward <- sig:
	default:
	}
}

// explain makes err the outcome of an interrupted run, if this one was.
func (r *relay) explain(ctx context.Context, err error) error {
	var why *interruption
	if !errors.As(context.Cause(ctx), &why) {
		return err
	}
	if errors.Is(err, sbxerr.Paused) {
		why.then = "its sandbox is paused, so the command is ended when it goes on"
		r.remedy = "caisson resume lets it go on"
		if r.background {
			why.then = "its sandbox is paused, so the command runs on when it is resumed"
			r.remedy = "caisson resume lets it go on, caisson kill --all ends it"
		}
	}
	return &cli.ExitError{Code: cli.ExitSignal + int(why.signal), Err: sbxerr.WithRemedy(sbxerr.Canceled, "caisson.run", why, r.remedy)}
}
