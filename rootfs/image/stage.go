package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// Filter passes the layers of one image, lowest first. Package filter does, in another process.
type Filter interface {
	// See reads a layer that is stored.
	See(ctx context.Context, r io.Reader) error
	// Add passes the next layer, the tar that write writes, to w.
	Add(ctx context.Context, write func(io.Writer) error, w io.Writer) (Report, error)
	// Close lets go of it.
	Close()
}

// Stage adds layers to an image that is stored.
type Stage struct {
	builder *builder
	limits  Limits
	open    func(context.Context, digest.Digest) (io.ReadCloser, error)
	begin   func(context.Context, Limits) (Filter, error)
	filter  Filter // nil unless it has seen the layers of the image
}

// NewStage begins with the layers of an image, lowest first, which this package stored.
// open opens one; Stage reads and closes it. begin makes the filter, once a layer is added.
func NewStage(l Limits, sink Sink, layers []ocispec.Descriptor, open func(context.Context, digest.Digest) (io.ReadCloser, error), begin func(context.Context, Limits) (Filter, error)) (*Stage, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	b := newBuilder(sink, l, orSilent(nil))
	b.layers = slices.Clone(layers)
	return &Stage{builder: b, limits: l, open: open, begin: begin}, nil
}

// know lets the filter see the layers that there are: a later layer must not do through
// them what it may not do by itself.
func (s *Stage) know(ctx context.Context) (err error) {
	if s.filter != nil {
		return nil
	}
	if s.filter, err = s.begin(ctx, s.limits); err != nil {
		return err
	}
	for _, d := range s.builder.layers {
		if err := s.see(ctx, d); err != nil {
			s.Release()
			return err
		}
	}
	return nil
}

// Release lets go of the filter. The next layer makes one anew.
func (s *Stage) Release() {
	if s.filter != nil {
		s.filter.Close()
		s.filter = nil
	}
}

func (s *Stage) see(ctx context.Context, d ocispec.Descriptor) error {
	stored, err := s.open(ctx, d.Digest)
	if err != nil {
		return err
	}
	err = s.filter.See(ctx, flow.ContextReader(ctx, stored))
	if err = errors.Join(err, stored.Close()); err != nil {
		return flow.Coded(sbxerr.ImageFormat, "image.stage", fmt.Errorf("layer %s: %w", d.Digest, err))
	}
	return nil
}

// Add stores one more layer, the tar that write writes, which passes the filter.
func (s *Stage) Add(ctx context.Context, write func(io.Writer) error) error {
	if len(s.builder.layers) >= s.limits.Layers {
		return sbxerr.WithRemedy(sbxerr.ImageTooBig, "image.stage", fmt.Errorf("the image has %d layers: no more are possible", len(s.builder.layers)), FewerLayers)
	}
	if err := s.know(ctx); err != nil {
		return err
	}
	return s.builder.layer(ctx, func(w io.Writer) (err error) {
		s.builder.report, err = s.filter.Add(ctx, func(to io.Writer) error { return write(flow.ContextWriter(ctx, to)) }, w)
		return err
	})
}

// Commit names the image so far. Further layers may be added to it.
func (s *Stage) Commit(ctx context.Context, r Result, config ocispec.ImageConfig) (Result, error) {
	if err := CheckName(r.Name); err != nil {
		return Result{}, err
	}
	clean, err := cleanConfig(config)
	if err != nil {
		return Result{}, err
	}
	clean.Labels = config.Labels
	return s.builder.commit(ctx, r, clean)
}

// Abandon lets go of what was stored for layers that no image has. It returns err, and
// what went wrong besides.
func (s *Stage) Abandon(ctx context.Context, err error) error {
	s.Release()
	return s.builder.abandonAfter(ctx, err)
}

// Layers returns the descriptors of the layers so far, lowest first.
func (s *Stage) Layers() []ocispec.Descriptor { return slices.Clone(s.builder.layers) }
