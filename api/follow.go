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

type (
	execStream = stream[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]
	runStream  = stream[caissonv1.RunRequest, caissonv1.RunResponse]
)

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

func (c *Client) followExec(f *foreground[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]) func(context.Context) execStream {
	return func(ctx context.Context) execStream {
		return &followed[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]{
			call: func(m *caissonv1.StreamExecRequest) (*connect.ServerStreamForClient[caissonv1.StreamExecResponse], error) {
				return c.execs().FollowExec(ctx, connect.NewRequest(&caissonv1.FollowExecRequest{Ref: m.GetStart().Ref, Exec: m.GetStart().Exec}))
			},
			later: func(m *caissonv1.StreamExecRequest) error { return c.signal(ctx, f.sandbox, f.exec, m.GetSignal()) },
			last:  func(m *caissonv1.StreamExecResponse) bool { return m.GetResult() != nil },
		}
	}
}

func (c *Client) followRun(f *foreground[caissonv1.RunRequest, caissonv1.RunResponse]) func(context.Context) runStream {
	return func(ctx context.Context) runStream {
		return &followed[caissonv1.RunRequest, caissonv1.RunResponse]{
			call: func(m *caissonv1.RunRequest) (*connect.ServerStreamForClient[caissonv1.RunResponse], error) {
				return c.sandboxes().FollowRun(ctx, connect.NewRequest(&caissonv1.FollowRunRequest{Spec: m.GetStart()}))
			},
			later: func(m *caissonv1.RunRequest) error { return c.signal(ctx, f.sandbox, f.exec, m.GetSignal()) },
			last:  func(m *caissonv1.RunResponse) bool { return m.GetResult() != nil },
		}
	}
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
