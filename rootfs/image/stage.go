package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Stage adds layers to an image that is stored.
type Stage struct {
	builder *builder
	limits  Limits
	open    func(context.Context, digest.Digest) (io.ReadCloser, error)
	known   bool // the filter has seen the layers of the image
}

// NewStage begins with the layers of an image, lowest first, which this package stored.
// open opens one; Stage reads and closes it.
func NewStage(l Limits, sink Sink, layers []ocispec.Descriptor, open func(context.Context, digest.Digest) (io.ReadCloser, error)) (*Stage, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	b := newBuilder(sink, l, orSilent(nil))
	b.layers = slices.Clone(layers)
	return &Stage{builder: b, limits: l, open: open}, nil
}

// know lets the filter see the layers that there are: a later layer must not do through
// them what it may not do by itself.
func (s *Stage) know(ctx context.Context) error {
	if s.known {
		return nil
	}
	for _, d := range s.builder.layers {
		if err := s.see(ctx, d); err != nil {
			return err
		}
	}
	s.known = true
	return nil
}

func (s *Stage) see(ctx context.Context, d ocispec.Descriptor) error {
	stored, err := s.open(ctx, d.Digest)
	if err != nil {
		return err
	}
	// Each read of a store may be a call: there are as many headers as files.
	err = s.builder.filter.Layer(bufio.NewReaderSize(contextReader(ctx, stored), 1<<20), io.Discard)
	if err = errors.Join(err, stored.Close()); err != nil {
		return coded(sbxerr.ImageFormat, "image.stage", fmt.Errorf("layer %s: %w", d.Digest, err))
	}
	return nil
}

// Add stores one more layer, the tar that write writes, which passes the filter.
func (s *Stage) Add(ctx context.Context, write func(io.Writer) error) error {
	if len(s.builder.layers) >= s.limits.Layers {
		return sbxerr.WithRemedy(sbxerr.ImageTooBig, "image.stage", fmt.Errorf("the image has %d layers: no more are possible", len(s.builder.layers)), fewerLayers)
	}
	if err := s.know(ctx); err != nil {
		return err
	}
	return s.builder.layer(ctx, func(w io.Writer) error {
		r, pw := io.Pipe()
		written := make(chan error, 1)
		go func() {
			err := write(contextWriter(ctx, pw))
			pw.CloseWithError(err)
			written <- err
		}()
		err := s.builder.filter.Layer(r, w)
		r.CloseWithError(err)
		if cause := <-written; cause != nil && !errors.Is(cause, io.ErrClosedPipe) {
			return cause
		}
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
	return s.builder.abandonAfter(ctx, err)
}

// Layers returns the descriptors of the layers so far, lowest first.
func (s *Stage) Layers() []ocispec.Descriptor { return slices.Clone(s.builder.layers) }
