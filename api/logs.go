package api

import (
	"context"
	"io"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Logs copies the kept output of a sandbox's command, from the request's offsets
// on. Nil writers drop theirs. Where the connection breaks it continues where it
// was.
func (c *Client) Logs(ctx context.Context, req *caissonv1.LogsRequest, stdout, stderr io.Writer) error {
	g := &logs{
		call: c.sandboxes().Logs, openLane: c.openLane, req: proto.CloneOf(req), retry: c.retry(),
		out: sink{stdout, req.StdoutOffset}, errs: sink{stderr, req.StderrOffset},
	}
	_, err := repeat(ctx, g.retry, func() (struct{}, error) { return struct{}{}, g.talk(ctx) })
	return err
}

// logs is one copy of kept output, over one connection after the other.
type logs struct {
	call     func(context.Context, *connect.Request[caissonv1.LogsRequest]) (*connect.ServerStreamForClient[caissonv1.LogsResponse], error)
	openLane func(context.Context) (name string, body io.ReadCloser, err error) // nil: there is to be no lane
	req      *caissonv1.LogsRequest
	retry    *retry

	out, errs sink
}

// talk copies until the end, or until something breaks.
func (g *logs) talk(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	named := make(chan string, 1)
	side := &lane[caissonv1.LogsResponse]{open: g.openLane, name: func(name string) { named <- name }, take: g.write, fail: cancel}
	defer side.leave()
	defer cancel()
	if err := g.receive(ctx, "", side, named, func() {}); err != nil {
		return side.or(err)
	}
	err := side.wait()
	if err != nil {
		g.openLane = nil // the rest of it comes without one
	}
	return err
}

// receive makes one call and hears it to its end. A call cannot be told of a lane
// later: when there is one, another call names it, and replaces this one with
// its first word. So the command is never without a reader, and is not dropped.
func (g *logs) receive(ctx context.Context, name string, side *lane[caissonv1.LogsResponse], named <-chan string, heard func()) error {
	g.req.Lane, g.req.StdoutOffset, g.req.StderrOffset = name, g.out.offset, g.errs.offset
	own, cancel := context.WithCancel(ctx)
	stream, err := g.call(own, connect.NewRequest(g.req))
	if err != nil {
		cancel()
		return err
	}
	defer stream.Close()
	defer cancel() // first: what is unread is not waited for
	for stream.Receive() {
		g.retry.connected()
		heard()
		if err := g.take(ctx, stream.Msg(), side); err != nil {
			return err
		}
		select {
		case name := <-named:
			return g.receive(ctx, name, side, named, cancel)
		default:
		}
	}
	return stream.Err()
}

func (g *logs) take(ctx context.Context, m *caissonv1.LogsResponse, side *lane[caissonv1.LogsResponse]) error {
	if m.GetOutputMoved() {
		return side.join()
	}
	if err := side.count(ctx, len(m.GetStdout())+len(m.GetStderr())); err != nil {
		return err
	}
	return g.write(m)
}

// write passes on output.
func (g *logs) write(m *caissonv1.LogsResponse) error {
	switch kind := m.Kind.(type) {
	case *caissonv1.LogsResponse_Stdout:
		return g.out.write(kind.Stdout)
	case *caissonv1.LogsResponse_Stderr:
		return g.errs.write(kind.Stderr)
	case *caissonv1.LogsResponse_StdoutSkipped:
		return g.out.skip(kind.StdoutSkipped)
	case *caissonv1.LogsResponse_StderrSkipped:
		return g.errs.skip(kind.StderrSkipped)
	}
	return nil
}
