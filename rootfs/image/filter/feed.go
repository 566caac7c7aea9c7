package filter

import (
	"context"
	"io"
	"os"

	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// Source is an image that was found, and gives its layers through the filter. It is an
// image.Feed.
type Source struct {
	source
	filter   *Filter
	expanded *flow.Budget
	next     int
	opened   io.ReadCloser // the next layer
}

func newSource(s source, l Limits) *Source {
	return &Source{source: s, filter: NewFilter(l), expanded: &flow.Budget{What: "the expanded image", Max: l.Bytes, Ratio: l.Ratio}}
}

// Archive finds the image in an archive, which may be packed as a whole. It is unpacked to
// spool, an empty file.
func Archive(ctx context.Context, packed, spool *os.File, l Limits) (*Source, error) {
	f, err := unpack(ctx, packed, spool, l)
	if err != nil {
		return nil, err
	}
	a, err := readArchive(f, l)
	if err != nil {
		return nil, err
	}
	src, err := a.source()
	if err != nil {
		return nil, err
	}
	return newSource(src, l), nil
}

// Head says what the image is.
func (s *Source) Head() Head {
	return Head{Kind: s.kind, Names: s.names, Digest: s.digest, Config: s.config, Layers: len(s.layers)}
}

// Next implements image.Feed: it waits for the next layer.
func (s *Source) Next(ctx context.Context) (err error) {
	s.opened, err = s.layers[s.next].open(ctx)
	return err
}

// Layer implements image.Feed.
func (s *Source) Layer(ctx context.Context, w io.Writer) error {
	l, stored := s.layers[s.next], s.opened
	s.next++
	defer stored.Close() // it was only read
	return l.read(flow.ContextReader(ctx, stored), s.expanded, func(plain io.Reader) error { return s.filter.Layer(plain, w) })
}

// Report implements image.Feed.
func (s *Source) Report(context.Context) (Report, error) { return s.filter.Report(), nil }

// Close implements image.Feed.
func (s *Source) Close() {}

var _ image.Feed = (*Source)(nil)
