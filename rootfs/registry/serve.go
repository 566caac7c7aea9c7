package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// Serve says what a name leads to, and then fetches what the daemon wants, until that ends the
// process.
func Serve(c *imageproc.Conn, request json.RawMessage, files []*os.File) error {
	var r imagework.Registry
	if err := json.Unmarshal(request, &r); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), r.Until)
	defer cancel()
	s, err := open(ctx, r, imageproc.NewAsker(files[0]))
	if err != nil {
		return err
	}
	if err := c.Send(imagework.MessageTarget, s.target); err != nil {
		return err
	}
	for {
		kind, body, err := c.Receive(imageproc.MaxMessage)
		if err != nil {
			return err
		}
		var f imagework.Fetch
		if err := json.Unmarshal(body, &f); err != nil || kind != imagework.MessageFetch {
			return fmt.Errorf("a message %q: %w", kind, err)
		}
		go func() {
			done := imagework.Fetched{ID: f.ID}
			if err := s.fetch(ctx, f); err != nil {
				failure := imageproc.FailureOf(err)
				done.Failure = &failure
			}
			_ = c.Send(imagework.MessageFetched, done) // the daemon ends the process, too
		}()
	}
}

// fetch writes content to a file of the daemon's.
func (s *session) fetch(ctx context.Context, f imagework.Fetch) error {
	file, err := s.asker.Ask(ctx, imagework.Ask{File: f.ID})
	if err != nil {
		return err
	}
	defer file.Close() // the daemon reads it
	switch {
	case f.Layer.Digest != "":
		return s.explain(s.layer(ctx, f.Layer, file))
	case f.Document.Digest != "":
		data, err := s.document(ctx, f.Document)
		if err == nil {
			_, err = file.Write(data)
		}
		return err
	}
	return s.signatures(ctx, f.Signatures, io.Writer(file))
}
