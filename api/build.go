package api

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// BuildImage makes an image by a Dockerfile. progress, which may be nil, gets the steps and
// the output of their commands. When ctx ends, so does the build, and there is no image.
func (c *Client) BuildImage(ctx context.Context, req *caissonv1.BuildImageRequest, progress func(*caissonv1.BuildProgress)) (*caissonv1.BuildProgress, error) {
	return c.follow(ctx, req, func(m *caissonv1.BuildProgress) bool {
		if m.Image == nil && progress != nil {
			progress(m)
		}
		return m.Image != nil
	})
}

// BuildNeeds says what BuildImage would read, and builds nothing.
func (c *Client) BuildNeeds(ctx context.Context, req *caissonv1.BuildImageRequest) (*caissonv1.BuildNeeds, error) {
	req = proto.CloneOf(req)
	req.NeedsOnly = true
	m, err := c.follow(ctx, req, func(m *caissonv1.BuildProgress) bool { return m.Needs != nil })
	return m.GetNeeds(), err
}

// follow returns the first message that is the last one.
func (c *Client) follow(ctx context.Context, req *caissonv1.BuildImageRequest, isLast func(*caissonv1.BuildProgress) bool) (*caissonv1.BuildProgress, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream where it is left early
	defer cancel()
	stream, err := c.images().BuildImage(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		if m := stream.Msg(); isLast(m) {
			return m, nil
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return nil, Explain(sbxerr.New(sbxerr.APIBroken, "api.build", "the daemon ended the call without an image"))
}
