package filter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/signed"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// Handlers do the work of this package for the daemon, by its kind.
var Handlers = map[string]imageproc.Handler{
	imagework.KindArchive: serveArchive,
	imagework.KindRemote:  serveRemote,
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
	if r.Over {
		if err := seeBelow(c, src.filter); err != nil {
			return err
		}
	}
	for range src.layers {
		if err := c.Send(imagework.MessageLayer, nil); err != nil {
			return err
		}
		if err := give(c, src); err != nil {
			return err
		}
	}
	return c.Send(imagework.MessageReport, imagework.Report{Report: src.filter.Report()})
}

// seeBelow lets the filter see the layers below, until the daemon wants those of the archive.
func seeBelow(c *imageproc.Conn, f *Filter) error {
	for {
		kind, _, err := c.Receive(imageproc.MaxMessage)
		if err != nil || kind == imagework.MessageGo {
			return err
		}
		if err := see(c, f); err != nil {
			return err
		}
	}
}

// see lets the filter see a layer that is stored.
func see(c *imageproc.Conn, f *Filter) error {
	if err := f.Layer(bufio.NewReaderSize(c.Stream(), 1<<20), io.Discard); err != nil {
		return err
	}
	return c.Send(imagework.MessageSeen, nil)
}

// give sends the next layer.
func give(c *imageproc.Conn, src *Source) error {
	ctx := context.Background() // the process ends with its caller
	if err := src.Next(ctx); err != nil {
		return err
	}
	return c.SendStream(func(w io.Writer) error { return src.Layer(ctx, w) })
}

// serveRemote gives the image of a registry, which the daemon asks.
func serveRemote(c *imageproc.Conn, request json.RawMessage, _ []*os.File) error {
	r, err := begin(request)
	if err != nil {
		return err
	}
	found, err := Find(context.Background(), func(_ context.Context, d ocispec.Descriptor) ([]byte, error) { return document(c, d) }, r.Target, r.Limits)
	if err != nil {
		return err
	}
	if r.Signed != nil {
		if err := checkSigned(c, *r.Signed, found.Remote); err != nil {
			return err
		}
	}
	var layers imagework.Go
	if err := c.Send(imagework.MessageFound, imagework.Found{Head: found.Open(nil, nil).Head(), Remote: found.Remote}); err != nil {
		return err
	}
	if err := expect(c, imagework.MessageGo, &layers); err != nil {
		return err
	}
	src := found.Open(layers.Stored, func(context.Context, int) (io.ReadCloser, error) {
		return io.NopCloser(c.Stream()), c.Send(imagework.MessageLayer, nil)
	})
	for range src.layers {
		if err := give(c, src); err != nil {
			return err
		}
	}
	return c.Send(imagework.MessageReport, imagework.Report{Report: src.filter.Report()})
}

func document(c *imageproc.Conn, d ocispec.Descriptor) ([]byte, error) {
	if err := c.Send(imagework.MessageDocument, d); err != nil {
		return nil, err
	}
	if err := expect(c, imagework.MessageDocument, nil); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(c.Stream(), d.Size+1))
	if err == nil && int64(len(data)) != d.Size {
		err = sbxerr.New(sbxerr.ImageFormat, opPull, "%s has %d bytes, stated are %d", d.Digest, len(data), d.Size)
	}
	return data, err
}

// checkSigned takes an image if the key signed its own digest or that of its index.
func checkSigned(c *imageproc.Conn, r imagework.Signed, found image.Remote) error {
	of := slices.Compact([]digest.Digest{found.Target.Digest, found.Source.Digest})
	if err := c.Send(imagework.MessageSignatures, of); err != nil {
		return err
	}
	if err := expect(c, imagework.MessageSignatures, nil); err != nil {
		return err
	}
	list := c.Stream()
	err := signed.Check(r, of, list)
	if _, rest := io.Copy(io.Discard, list); err == nil {
		err = rest
	}
	return err
}

func expect(c *imageproc.Conn, kind string, v any) error {
	got, body, err := c.Receive(imageproc.MaxMessage)
	if err == nil && got != kind {
		err = fmt.Errorf("a message %q where %q is due", got, kind)
	}
	if err != nil || v == nil {
		return err
	}
	return json.Unmarshal(body, v)
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
		if kind == imagework.MessageSee {
			if err := see(c, f); err != nil {
				return err
			}
			continue
		}
		in := bufio.NewReaderSize(c.Stream(), 1<<20)
		if err := c.SendStream(func(w io.Writer) error { return f.Layer(in, w) }); err != nil {
			return err
		}
		if err := c.Send(imagework.MessageReport, imagework.Report{Report: f.Report()}); err != nil {
			return err
		}
	}
}
