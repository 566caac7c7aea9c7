package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

// pendingSignals is how many signals wait for the command. The kernel keeps one
// of each kind, so a caller that floods loses nothing it could have had.
const pendingSignals = 64

// inbound is what a caller says after its first message. At most one field is
// set; none is a message that holds nothing.
type inbound struct {
	input      *[]byte
	closeInput bool
	signal     *int32
	resize     *caissonv1.WinSize
	again      string // a kind that only the first message may have
}

// dialect is how the messages of one call are read and made.
type dialect[Req, Res any] struct {
	report report[Res]
	verb   string // of the errors: "run"
	hear   func(*Req) inbound
}

// conversation is the stream of one foreground command, whose caller may say more
// while it runs.
type conversation[Req, Res any] struct {
	dialect[Req, Res]
	account[Res]
	receive func() (*Req, error)
	in      *stdin // nil: the command has no input of this caller's
	signals chan syscall.Signal
	resizes chan plan.WinSize
	screen  screen
	bug     atomic.Pointer[string] // with which listen panicked
}

// converse connects run with the caller until the command has ended. A nil
// terminal is not known before the command is.
func converse[Req, Res any](ctx context.Context, stream *connect.BidiStream[Req, Res], ls *lanes, d dialect[Req, Res], withInput bool, terminal *bool, run runner) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &conversation[Req, Res]{
		dialect: d, account: newAccount(d.report, stream, cancel), receive: stream.Receive,
		signals: make(chan syscall.Signal, pendingSignals), resizes: make(chan plan.WinSize, 1),
		screen: screen{known: terminal},
	}
	rio := runtime.IO{Signals: c.signals, Resizes: c.resizes, Started: c.start}
	if withInput {
		c.in = newStdin(func(total int64) { _ = c.send(d.report.taken(total)) }) // send cancels the run itself
		rio.Stdin = c.in
	}
	return c.tell(ctx, ls, rio, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		go c.listen(ctx)
		result, err := run(ctx, rio)
		if bug := c.bug.Load(); bug != nil {
			panic(*bug) // which ends this call alone
		}
		if cause := context.Cause(ctx); errors.Is(cause, sbxerr.APIUsage) {
			return nil, cause // the caller broke the protocol: that ended the call
		}
		return result, err
	})
}

// start tells the caller that the command runs.
func (c *conversation[Req, Res]) start(info runtime.Info, exec runtime.ExecInfo) {
	if c.send(c.started(info, exec)) != nil {
		return // it is cancelled
	}
	if err := c.screen.learn(exec.TTY); err != nil {
		c.cancel(err)
	}
}

// listen passes on what the caller says until it closes its side or goes away.
// The end of its side is the end of its input, not of the call.
func (c *conversation[Req, Res]) listen(ctx context.Context) {
	defer c.carry()
	for {
		m, err := c.receive()
		if err == nil {
			err = c.deliver(ctx, c.hear(m))
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			c.endInput()
			return
		}
		c.leaveInput()
		c.cancel(receiveError(err))
		return
	}
}

// endInput is the end of what the caller has for the command.
func (c *conversation[Req, Res]) endInput() {
	if c.in != nil {
		c.in.end()
	}
}

// leaveInput is the end of a caller that did not say so.
func (c *conversation[Req, Res]) leaveInput() {
	if c.in != nil {
		c.in.leave()
	}
}

// carry hands a panic of listen over to the call's own goroutine, where it is
// recovered from: in this one it would end the daemon.
func (c *conversation[Req, Res]) carry() {
	if value := recover(); value != nil {
		c.leaveInput()
		bug := fmt.Sprintf("%v\n%s", value, debug.Stack())
		c.bug.Store(&bug)
		c.cancel(sbxerr.New(sbxerr.Internal, "server."+c.verb, "the reading of the caller's messages panicked"))
	}
}

func (c *conversation[Req, Res]) deliver(ctx context.Context, m inbound) error {
	switch {
	case m.input != nil && c.in == nil:
		return c.misuse("input was sent, but the first message did not set stdin")
	case m.input != nil:
		c.in.push(ctx, *m.input)
	case m.closeInput:
		c.endInput()
	case m.signal != nil:
		if err := checkSignal(*m.signal); err != nil {
			return err
		}
		select {
		case c.signals <- syscall.Signal(*m.signal):
		default:
		}
	case m.resize != nil:
		return c.resize(m.resize)
	case m.again != "":
		return c.misuse("%s was sent after the first message", m.again)
	default:
		return c.misuse("a message holds nothing")
	}
	return nil
}

// resize passes the newest size on; older ones that nobody took are dropped.
func (c *conversation[Req, Res]) resize(m *caissonv1.WinSize) error {
	size, err := winSizeOf(m)
	if err == nil {
		err = c.screen.resized()
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.APIUsage, "server."+c.verb, err)
	}
	select {
	case <-c.resizes:
	default:
	}
	c.resizes <- *size // there is room: only this goroutine sends
	return nil
}

func (c *conversation[Req, Res]) misuse(format string, args ...any) error {
	return sbxerr.New(sbxerr.APIUsage, "server."+c.verb, format, args...)
}

// screen knows whether the command has a terminal, as soon as that is known,
// and refuses sizes for one that is not there.
type screen struct {
	mu    sync.Mutex
	known *bool
	used  bool
}

func (s *screen) learn(terminal bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = &terminal
	}
	return s.check()
}

func (s *screen) resized() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
	return s.check()
}

func (s *screen) check() error {
	if s.used && s.known != nil && !*s.known {
		return sbxerr.New(sbxerr.APIUsage, "server.resize", "resize was sent, but the command has no terminal")
	}
	return nil
}

// receiveFirst waits for the first message, but not for long: a caller that
// says nothing must not hold a call.
func receiveFirst[Req, Res any](ctx context.Context, stream *connect.BidiStream[Req, Res], timeout time.Duration) (*Req, error) {
	type first struct {
		m   *Req
		err error
	}
	received := make(chan first, 1)
	go func() { // ends with the stream at the latest
		m, err := stream.Receive()
		received <- first{m, err}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, sbxerr.New(sbxerr.APIUsage, "server.receive", "no first message within %v", timeout)
	case f := <-received:
		if f.err != nil {
			return nil, receiveError(f.err)
		}
		return f.m, nil
	}
}

// receiveError puts a failure to receive under the code of its reason: our own
// refusals keep theirs, malformed messages are usage, the rest is a caller
// that went away.
func receiveError(err error) error {
	if sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeResourceExhausted:
		return sbxerr.Wrap(sbxerr.APIUsage, "server.receive", err)
	}
	if errors.Is(err, io.EOF) {
		return sbxerr.New(sbxerr.APIUsage, "server.receive", "the call ended before its first message")
	}
	return sbxerr.Wrap(sbxerr.Canceled, "server.receive", err)
}
