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
	return again(func() (Result, error) {
		return a.store(ctx, src, sink, progress, Result{Name: name, Kind: src.kind, Source: src.digest}, config)
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

func (a *archive) store(ctx context.Context, src source, sink Sink, progress func(string), r Result, config v1.ImageConfig) (_ Result, err error) {
	b := newBuilder(sink, a.limits, progress)
	defer func() { err = b.abandonAfter(ctx, err) }()
	if err := a.convert(ctx, src, b); err != nil {
		return Result{}, err
	}
	return b.commit(ctx, r, config)
}

// convert passes the layers of src through the filter of b.
func (a *archive) convert(ctx context.Context, src source, b *builder) error {
	expanded := &budget{what: "the expanded image", max: a.limits.Bytes, ratio: a.limits.Ratio}
	for i, l := range src.layers {
		b.progress(fmt.Sprintf("filtering layer %d of %d", i+1, len(src.layers)))
		err := b.layer(ctx, func(w io.Writer) error {
			stored := contextReader(ctx, a.open(l.at))
			return l.read(stored, expanded, func(plain io.Reader) error { return b.filter.Layer(plain, w) })
		})
		if err != nil {
			return coded(sbxerr.ImageFormat, "image.import", fmt.Errorf("layer %d of %d: %w", i+1, len(src.layers), err))
		}
	}
	return nil
}

func orSilent(progress func(string)) func(string) {
	if progress == nil {
		return func(string) {}
	}
	return progress
}
