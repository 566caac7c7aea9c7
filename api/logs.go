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
	openLane openLane // nil: there is to be no lane
	req      *caissonv1.LogsRequest
	retry    *retry

	out, errs sink
}

// talk copies until the end, or until something breaks.
func (g *logs) talk(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.req.StdoutOffset, g.req.StderrOffset = g.out.offset, g.errs.offset
	stream, err := g.call(ctx, connect.NewRequest(g.req))
	if err != nil {
		return err
	}
	defer stream.Close()
	side := &lane[caissonv1.LogsResponse]{open: g.openLane, call: stream, take: g.write, fail: cancel}
	defer side.leave()
	defer cancel() // first: what is unread is not waited for
	for stream.Receive() {
		g.retry.connected()
		if err := g.take(ctx, stream.Msg(), side); err != nil {
			return side.or(err)
		}
	}
	if err := stream.Err(); err != nil {
		return side.or(err)
	}
	err = side.wait()
	if err != nil {
		g.openLane = nil // the rest of it comes without one
	}
	return err
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
