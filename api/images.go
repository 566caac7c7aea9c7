package api

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// importChunk is the most of an archive in one message.
const importChunk = 256 << 10

// ListImages returns the daemon's images.
func (c *Client) ListImages(ctx context.Context, req *caissonv1.ListImagesRequest) (*caissonv1.ListImagesResponse, error) {
	return whole(ctx, c.images().ListImages, req)
}

// InspectImage returns all that is known of one image.
func (c *Client) InspectImage(ctx context.Context, req *caissonv1.InspectImageRequest) (*caissonv1.InspectImageResponse, error) {
	return call(ctx, c.images().InspectImage, req)
}

// RemoveImage removes one image that no sandbox needs.
func (c *Client) RemoveImage(ctx context.Context, req *caissonv1.RemoveImageRequest) (*caissonv1.RemoveImageResponse, error) {
	return call(ctx, c.images().RemoveImage, req)
}

// FromHost makes an image from software of the daemon's host. progress, which
// may be nil, gets a line for each step; the last message holds the image.
func (c *Client) FromHost(ctx context.Context, req *caissonv1.FromHostRequest, progress func(string)) (*caissonv1.ImageProgress, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.images().FromHost(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return lastProgress(progress, func() (*caissonv1.ImageProgress, error) {
		if stream.Receive() {
			return stream.Msg(), nil
		}
		if err := stream.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	})
}

// PullImage has the daemon fetch an image from its registry. progress, which may be nil,
// gets each message; the last one holds the image. With req.All there is one for each image.
func (c *Client) PullImage(ctx context.Context, req *caissonv1.PullImageRequest, progress func(*caissonv1.ImageProgress)) (*caissonv1.ImageProgress, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.images().PullImage(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var last *caissonv1.ImageProgress
	for stream.Receive() {
		if last = stream.Msg(); progress != nil {
			progress(last)
		}
	}
	switch err := stream.Err(); {
	case err != nil:
		return nil, err
	case last.GetImage() == nil && !req.All:
		return nil, Explain(sbxerr.New(sbxerr.APIBroken, "api.image", "the daemon ended the call without an image"))
	}
	return last, nil
}

// TagImage gives an image a second name.
func (c *Client) TagImage(ctx context.Context, req *caissonv1.TagImageRequest) (*caissonv1.TagImageResponse, error) {
	return call(ctx, c.images().TagImage, req)
}

// PruneImages removes images that nothing needs.
func (c *Client) PruneImages(ctx context.Context, req *caissonv1.PruneImagesRequest) (*caissonv1.PruneImagesResponse, error) {
	return call(ctx, c.images().PruneImages, req)
}

// ImageUsage says how much of the disk images take.
func (c *Client) ImageUsage(ctx context.Context, req *caissonv1.ImageUsageRequest) (*caissonv1.ImageUsageResponse, error) {
	return call(ctx, c.images().ImageUsage, req)
}

// SaveImages writes images to w as one tar. What w has got when an error is returned is a
// part of it.
func (c *Client) SaveImages(ctx context.Context, req *caissonv1.SaveImagesRequest, w io.Writer) error {
	return receiveArchive(ctx, c.images().SaveImages, req, w)
}

// receiveArchive writes the chunks that a call streams.
func receiveArchive[Q, A any, P interface {
	*A
	GetChunk() []byte
}](ctx context.Context, save func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[A], error), req *Q, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := save(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		if _, err := w.Write(P(stream.Msg()).GetChunk()); err != nil {
			return sbxerr.Wrap(sbxerr.ClientIO, "api.save", fmt.Errorf("write the archive: %w", err))
		}
	}
	return stream.Err()
}

// ImportImage sends the archive r: a tar of an OCI layout, a docker-archive or
// a root file system. An empty name takes the one that the archive states. An
// error of r is returned under SBX-804, and nothing is imported.
func (c *Client) ImportImage(ctx context.Context, name string, r io.Reader) (*caissonv1.ImportImageResponse, error) {
	header := &caissonv1.ImportImageRequest{Kind: &caissonv1.ImportImageRequest_Header{Header: &caissonv1.ImportHeader{Name: name}}}
	return importArchive(ctx, c.images().ImportImage, header, r, func(p []byte) *caissonv1.ImportImageRequest {
		return &caissonv1.ImportImageRequest{Kind: &caissonv1.ImportImageRequest_Chunk{Chunk: p}}
	})
}

// importArchive sends an archive after a header.
func importArchive[Q, A any](ctx context.Context, begin func(context.Context) *connect.ClientStreamForClient[Q, A], header *Q, r io.Reader, chunk func([]byte) *Q) (*A, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := begin(ctx)
	if err := sendArchive(stream, header, r, chunk); err != nil {
		cancel() // and no close: it might end the request cleanly before the connection breaks
		return nil, Explain(sbxerr.Wrap(sbxerr.ClientIO, "api.import", fmt.Errorf("read the archive: %w", err)))
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// sendArchive returns only r's errors: CloseAndReceive returns those of the call.
func sendArchive[Q, A any](stream *connect.ClientStreamForClient[Q, A], header *Q, r io.Reader, chunk func([]byte) *Q) error {
	if stream.Send(header) != nil {
		return nil
	}
	buf := make([]byte, importChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 && stream.Send(chunk(buf[:n])) != nil {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lastProgress passes the lines of progress on and returns the last message.
func lastProgress(progress func(string), receive func() (*caissonv1.ImageProgress, error)) (*caissonv1.ImageProgress, error) {
	var last *caissonv1.ImageProgress
	for {
		m, err := receive()
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return nil, err
		case last.GetImage() == nil:
			return nil, Explain(sbxerr.New(sbxerr.APIBroken, "api.image", "the daemon ended the call without an image"))
		default:
			return last, nil
		}
		if m.Message != "" && progress != nil {
			progress(m.Message)
		}
		last = m
	}
}
