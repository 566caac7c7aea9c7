package pid1

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// Exec is a command that was started.
type Exec struct {
	// PID is the command's in the sandbox's pid namespace, by PID 1's word: to
	// be shown, never to be signalled from the host.
	PID int

	c        *Client
	id       uint32
	place    bool   // it is to be placed before it runs
	adopted  bool   // an earlier daemon started it
	name     string // the command's Args[0] and Cwd, for errors
	cwd      string
	inputs   string        // the paths of its input files, for errors
	placed   chan struct{} // closed when PID 1 said Placed
	answered chan struct{} // closed when PID 1 answered the Start
	exited   chan struct{} // closed when it reported the end
	signals  chan struct{} // holds one token while a Signal is unanswered

	// Guarded by c.mu; read without it once the channel above says so.
	state      state
	startErr   error
	exit       Exit
	released   bool
	unanswered chan initproto.Signaled // where the answer to the Signal goes
	scope      initproto.Scope         // of that Signal
}

// state is where a command stands, by PID 1's reports.
type state uint8

const (
	asked      state = iota
	waiting          // Placed
	proceeding       // told to Proceed, or to be abandoned
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

func newExec(c *Client, cmd Command) *Exec {
	return &Exec{
		c: c, id: cmd.Number, name: cmd.Args[0], cwd: cmd.Cwd, inputs: cmd.inputPaths(), place: cmd.Place != nil,
		placed:   make(chan struct{}),
		answered: make(chan struct{}),
		exited:   make(chan struct{}),
		signals:  make(chan struct{}, 1),
	}
}

// adoptedExec is what m hands over. The caller gives it its Client.
func adoptedExec(m initproto.Held) *Exec {
	return &Exec{
		PID: m.PID, id: m.Exec, adopted: true, state: running,
		exited:  make(chan struct{}),
		signals: make(chan struct{}, 1),
	}
}

// Number returns what the command was started as: Command.Number.
func (e *Exec) Number() uint32 { return e.id }

// Exited is closed when the command has ended.
func (e *Exec) Exited() <-chan struct{} { return e.exited }

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

// ctxError says what was being waited for when ctx, the caller's, ended.
func ctxError(ctx context.Context, op, what string) error {
	code := sbxerr.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = sbxerr.Deadline
	}
	return sbxerr.New(code, op, "%s: %w", what, context.Cause(ctx))
}
