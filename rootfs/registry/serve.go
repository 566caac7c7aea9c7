package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/caisson-run/caisson/rootfs/image/filter"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// Serve finds an image in its registry, and sends its layers once the daemon wants them.
func Serve(c *imageproc.Conn, request json.RawMessage, files []*os.File) error {
	var r imagework.Request
	err := json.Unmarshal(request, &r)
	if err == nil && r.Registry == nil {
		err = errors.New("no registry is named")
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), r.Registry.Until)
	defer cancel()
	s, err := open(ctx, *r.Registry, imageproc.NewAsker(files[0]))
	if err != nil {
		return err
	}
	found, err := filter.Find(ctx, s.document, s.target, r.Limits)
	if err != nil {
		return err
	}
	if len(s.Key) > 0 {
		if err := s.signed(ctx, found.Remote); err != nil {
			return err
		}
	}
	if err := c.Send(imagework.MessageFound, imagework.Found{Head: found.Open(nil, nil).Head(), Remote: found.Remote}); err != nil {
		return err
	}
	var begin imagework.Go
	if err := await(c, &begin); err != nil {
		return err
	}
	stored := len(begin.Stored)
	fetches := s.fetchAll(ctx, stored, found.Layers)
	src := found.Open(begin.Stored, func(_ context.Context, i int) (io.ReadCloser, error) {
		if i < stored {
			return io.NopCloser(c.Stream()), nil
		}
		return fetches[i-stored].open()
	})
	return src.Send(c, func() error { return await(c, nil) })
}

// await waits for the daemon to say that the work goes on.
func await(c *imageproc.Conn, v any) error {
	kind, body, err := c.Receive(imageproc.MaxMessage)
	if err == nil && kind != imagework.MessageGo {
		err = fmt.Errorf("a message %q where %q is due", kind, imagework.MessageGo)
	}
	if err != nil || v == nil {
		return err
	}
	return json.Unmarshal(body, v)
}
