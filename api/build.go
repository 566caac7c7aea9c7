package api

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// BuildImage makes an image by a Dockerfile. progress, which may be nil, gets the steps and
// the output of their commands. When ctx ends, so does the build, and there is no image.
func (c *Client) BuildImage(ctx context.Context, req *caissonv1.BuildImageRequest, progress func(*caissonv1.BuildProgress)) (*caissonv1.BuildProgress, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream where it is left early
	defer cancel()
	stream, err := c.images().BuildImage(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		m := stream.Msg()
		if m.Image != nil {
			return m, nil
		}
		if progress != nil {
			progress(m)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return nil, Explain(sbxerr.New(sbxerr.APIBroken, "api.build", "the daemon ended the call without an image"))
}
