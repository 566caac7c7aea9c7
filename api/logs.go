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
	req = proto.CloneOf(req)
	out, errs := sink{stdout, req.StdoutOffset}, sink{stderr, req.StderrOffset}
	r := c.retry()
	_, err := repeat(ctx, r, func() (struct{}, error) {
		req.StdoutOffset, req.StderrOffset = out.offset, errs.offset
		return struct{}{}, c.logs(ctx, req, r, &out, &errs)
	})
	return err
}

func (c *Client) logs(ctx context.Context, req *caissonv1.LogsRequest, r *retry, out, errs *sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.sandboxes().Logs(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		r.connected()
		switch kind := stream.Msg().Kind.(type) {
		case *caissonv1.LogsResponse_Stdout:
			err = out.write(kind.Stdout)
		case *caissonv1.LogsResponse_Stderr:
			err = errs.write(kind.Stderr)
		case *caissonv1.LogsResponse_StdoutSkipped:
			err = out.skip(kind.StdoutSkipped)
		case *caissonv1.LogsResponse_StderrSkipped:
			err = errs.skip(kind.StderrSkipped)
		}
		if err != nil {
			return err
		}
	}
	return stream.Err()
}
