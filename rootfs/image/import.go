package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Import reads an archive from r and commits the image that it holds. The kind
// of the archive is found out: an OCI layout, a docker-archive, or a root file
// system, each as a tar, plain or packed as a whole with gzip or zstd.
//
// Nothing is committed unless all of the archive was read and found sound. The
// codes are ImageFormat for an archive that is not well-formed or not what it
// states, ImageContent for one that holds what no image may hold, ImageTooBig
// for one past a limit, Config for a name, StateDir for the spool, APIBroken
// for errors of r, Canceled and Deadline for the end of ctx, and the sink's
// own.
func Import(ctx context.Context, r io.Reader, o Options, sink Sink) (Result, error) {
	if err := o.Limits.Validate(); err != nil {
		return Result{}, err
	}
	if o.Name != "" {
		if err := CheckName(o.Name); err != nil {
			return Result{}, err
		}
	}
	progress := orSilent(o.Progress)
	progress("receiving the archive")
	packed, err := receive(ctx, r, o.SpoolDir, o.Limits)
	if err != nil {
		return Result{}, err
	}
	defer packed.Close() // it was only read, and has no name
	if o.Received != nil {
		done, err := o.Received(ctx)
		if err != nil {
			return Result{}, err
		}
		defer done()
	}
	f, err := unpack(ctx, packed, o.SpoolDir, o.Limits)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	a, err := readArchive(f, o.Limits)
	if err != nil {
		return Result{}, err
	}
	src, err := a.source()
	if err != nil {
		return Result{}, err
	}
	name, err := choose(o.Name, src.names)
	if err != nil {
		return Result{}, err
	}
	config, err := cleanConfig(src.config)
	if err != nil {
		return Result{}, err
	}
	progress(fmt.Sprintf("the archive is a %s of %d layers", src.kind, len(src.layers)))
	s := storing{limits: o.Limits, sink: sink, progress: progress}
	return again(func() (Result, error) {
		return s.store(ctx, src, Result{Name: name, Kind: src.kind, Source: src.digest}, config)
	})
}

// again calls store until no damaged copy of a blob is in the way.
func again(store func() (Result, error)) (Result, error) {
	for try := 0; ; try++ {
		r, err := store()
		if !errors.Is(err, ErrStoreAgain) || try > maxLayers+1 { // layers and two documents
			return r, err
		}
	}
}

// storing is what the layers of a source are stored with.
type storing struct {
	limits   Limits
	sink     Sink
	progress func(string)
	layer    func(context.Context) (done func(), err error) // called with each layer that is there; nil does nothing
}

// store writes src anew.
func (s storing) store(ctx context.Context, src source, r Result, config v1.ImageConfig) (_ Result, err error) {
	b := newBuilder(s.sink, s.limits, s.progress)
	defer func() { err = b.abandonAfter(ctx, err) }()
	expanded := &budget{what: "the expanded image", max: s.limits.Bytes, ratio: s.limits.Ratio}
	for i, l := range src.layers {
		b.progress(fmt.Sprintf("filtering layer %d of %d", i+1, len(src.layers)))
		if err := s.convert(ctx, l, expanded, b); err != nil {
			return Result{}, coded(sbxerr.ImageFormat, "image.import", fmt.Errorf("layer %d of %d: %w", i+1, len(src.layers), err))
		}
	}
	return b.commit(ctx, r, config)
}

// convert passes a layer through the filter of b.
func (s storing) convert(ctx context.Context, l sourceLayer, expanded *budget, b *builder) error {
	stored, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer stored.Close() // it was only read
	if s.layer != nil {
		done, err := s.layer(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	return b.layer(ctx, func(w io.Writer) error {
		return l.read(contextReader(ctx, stored), expanded, func(plain io.Reader) error { return b.filter.Layer(plain, w) })
	})
}

func orSilent(progress func(string)) func(string) {
	if progress == nil {
		return func(string) {}
	}
	return progress
}
