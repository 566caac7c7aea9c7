package filter

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"

	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// Handlers do the work of this package for the daemon, by its kind.
var Handlers = map[string]imageproc.Handler{
	imagework.KindArchive: serveArchive,
	imagework.KindFilter:  serveFilter,
}

func begin(request json.RawMessage) (r imagework.Request, err error) {
	if err := json.Unmarshal(request, &r); err != nil {
		return r, err
	}
	return r, r.Limits.Validate()
}

// serveArchive gives the image of an archive.
func serveArchive(c *imageproc.Conn, request json.RawMessage, files []*os.File) error {
	r, err := begin(request)
	if err != nil {
		return err
	}
	src, err := Archive(context.Background(), files[0], files[1], r.Limits)
	if err != nil {
		return err
	}
	if err := c.Send(imagework.MessageHead, src.Head()); err != nil {
		return err
	}
	return src.Send(c, func() error { return nil })
}

// Send sends the daemon all layers, each once ready returns, and the report.
func (s *Source) Send(c *imageproc.Conn, ready func() error) error {
	ctx := context.Background() // the process ends with its caller
	for range s.layers {
		err := s.Next(ctx)
		if err == nil {
			err = c.Send(imagework.MessageLayer, nil)
		}
		if err == nil {
			err = ready()
		}
		if err == nil {
			err = c.SendStream(func(w io.Writer) error { return s.Layer(ctx, w) })
		}
		if err != nil {
			return err
		}
	}
	return c.Send(imagework.MessageReport, imagework.Report{Report: s.filter.Report()})
}

// serveFilter passes layers through one filter, until the daemon ends the process.
func serveFilter(c *imageproc.Conn, request json.RawMessage, _ []*os.File) error {
	r, err := begin(request)
	if err != nil {
		return err
	}
	f := NewFilter(r.Limits)
	for {
		kind, _, err := c.Receive(imageproc.MaxMessage)
		if err != nil {
			return err
		}
		in := bufio.NewReaderSize(c.Stream(), 1<<20)
		if kind == imagework.MessageSee {
			if err := f.Layer(in, io.Discard); err != nil {
				return err
			}
			if err := c.Send(imagework.MessageSeen, nil); err != nil {
				return err
			}
			continue
		}
		if err := c.SendStream(func(w io.Writer) error { return f.Layer(in, w) }); err != nil {
			return err
		}
		if err := c.Send(imagework.MessageReport, imagework.Report{Report: f.Report()}); err != nil {
			return err
		}
	}
}
