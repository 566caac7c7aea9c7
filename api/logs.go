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
	f := c.foreground(IO{Stdout: stdout, Stderr: stderr})
	f.out.offset, f.errs.offset = req.StdoutOffset, req.StderrOffset
	_, err := repeat(ctx, f.retry, func() (struct{}, error) {
		req.StdoutOffset, req.StderrOffset = f.out.offset, f.errs.offset
		_, err := f.talk(ctx, func(ctx context.Context) (*events, error) {
			return c.sandboxes().Logs(ctx, connect.NewRequest(req))
		})
		return struct{}{}, err
	})
	return err
}
