package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/sbxerr"
)

// thawPoll is how often a signal for a sandbox that is paused is tried again.
const thawPoll = 100 * time.Millisecond

// stream is a call about one command: what its caller says, and the daemon.
type stream[Req, Res any] interface {
	Send(*Req) error
	Receive() (*Res, error)
	ResponseHeader() http.Header
	CloseRequest() error
	CloseResponse() error
}

// followed is a stream whose first message is the request of a call that takes no
// others. What is said later is said in calls of their own.
type followed[Req, Res any] struct {
	call  func(*Req) (*connect.ServerStreamForClient[Res], error)
	later func(*Req) error
	last  func(*Res) bool
	reply *connect.ServerStreamForClient[Res] // nil before the first message
}

// Send returns for the first message when the command runs, or failed to.
func (s *followed[Req, Res]) Send(m *Req) (err error) {
	if s.reply != nil {
		return s.later(m)
	}
	s.reply, err = s.call(m)
	return err
}

// Receive reads the end of the call with its last message: then the connection is
// free for another.
func (s *followed[Req, Res]) Receive() (*Res, error) {
	if !s.reply.Receive() {
		return nil, cmp.Or(s.reply.Err(), io.EOF)
	}
	m := s.reply.Msg()
	if s.last(m) {
		s.reply.Receive()
	}
	return m, nil
}

func (s *followed[Req, Res]) ResponseHeader() http.Header { return s.reply.ResponseHeader() }
func (s *followed[Req, Res]) CloseRequest() error         { return nil } // there was one message

func (s *followed[Req, Res]) CloseResponse() error {
	if s.reply == nil {
		return nil
	}
	return s.reply.Close()
}

// saysNoMore reports whether the caller says no more of a command than its request:
// then a call in one direction does.
func saysNoMore(spec *caissonv1.ExecSpec, rio IO) bool {
	return rio.Stdin == nil && rio.Resizes == nil && spec.GetTty() == nil
}

// follow returns what opens a followed call of f. signal is what a message says to the
// command.
func follow[Req, Res any](c *Client, f *foreground[Req, Res], call followCall[Req, Res], signal func(*Req) int32) func(context.Context) stream[Req, Res] {
	return func(ctx context.Context) stream[Req, Res] {
		return &followed[Req, Res]{
			call:  func(first *Req) (*connect.ServerStreamForClient[Res], error) { return call(ctx, first) },
			later: func(m *Req) error { return c.signal(ctx, f.sandbox, f.exec, signal(m)) },
			last:  func(m *Res) bool { return f.hear(m).result != nil },
		}
	}
}

// followCall makes the call that a first message stands for.
type followCall[Req, Res any] func(context.Context, *Req) (*connect.ServerStreamForClient[Res], error)

func (c *Client) followExec(ctx context.Context, m *caissonv1.StreamExecRequest) (*connect.ServerStreamForClient[caissonv1.StreamExecResponse], error) {
	return c.execs().FollowExec(ctx, connect.NewRequest(&caissonv1.FollowExecRequest{Ref: m.GetStart().Ref, Exec: m.GetStart().Exec}))
}

func (c *Client) followRun(ctx context.Context, m *caissonv1.RunRequest) (*connect.ServerStreamForClient[caissonv1.RunResponse], error) {
	return c.sandboxes().FollowRun(ctx, connect.NewRequest(&caissonv1.FollowRunRequest{Spec: m.GetStart()}))
}

// signal sends a signal to a command whose call takes none. As in a stream, it waits
// where the sandbox is paused.
func (c *Client) signal(ctx context.Context, ref, exec string, signal int32) error {
	for {
		err := c.Kill(ctx, ref, exec, syscall.Signal(signal), false)
		if !errors.Is(err, sbxerr.Paused) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(thawPoll):
		}
	}
}
