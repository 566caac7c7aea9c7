package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/go-digest"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// Head is what an image says of itself, before its layers. It is not trusted.
type Head struct {
	Kind   string        `json:"kind"`
	Names  []string      `json:"names,omitempty"`  // that an archive gives it
	Digest digest.Digest `json:"digest,omitempty"` // of the document that stands for it; empty: there is none
	Config Config        `json:"config"`
	Layers int           `json:"layers"`
}

// Feed gives the layers of an image as the filter wrote them, lowest first. package filter is
// one, in another process.
type Feed interface {
	// Next waits until the next layer can be read.
	Next(ctx context.Context) error
	// Layer writes it.
	Layer(ctx context.Context, w io.Writer) error
	// Report says what the filter did, after the last layer.
	Report(ctx context.Context) (Report, error)
	// Close lets go of it.
	Close()
}

// Opener finds the image in an archive.
type Opener func(ctx context.Context, packed *os.File, l Limits) (Head, Feed, error)

// Import reads an archive from r and commits the image that open finds in it.
//
// Nothing is committed unless all of the archive was read and found sound. The
// codes are ImageFormat for an archive that is not well-formed or not what it
// states, ImageContent for one that holds what no image may hold, ImageTooBig
// for one past a limit, Config for a name, StateDir for the spool, APIBroken
// for errors of r, Canceled and Deadline for the end of ctx, and the sink's
// and open's own.
func Import(ctx context.Context, r io.Reader, o Options, sink Sink, open Opener) (Result, error) {
	if err := o.Limits.Validate(); err != nil {
		return Result{}, err
	}
	if o.Name != "" {
		if err := CheckName(o.Name); err != nil {
			return Result{}, err
		}
	}
	var stored Result
	err := received(ctx, r, o, func(packed *os.File) (err error) {
		stored, err = again(func() (Result, error) {
			head, feed, err := open(ctx, packed, o.Limits)
			if err != nil {
				return Result{}, err
			}
			defer feed.Close()
			return Store(ctx, StoreOptions{Name: o.Name, Limits: o.Limits, Progress: o.Progress}, head, feed, sink)
		})
		return err
	})
	return stored, err
}

// received calls work with an archive, when all of it is there.
func received(ctx context.Context, r io.Reader, o Options, work func(packed *os.File) error) error {
	orSilent(o.Progress)("receiving the archive")
	packed, err := receive(ctx, r, o.SpoolDir, o.Limits)
	if err != nil {
		return err
	}
	defer packed.Close() // it was only read, and has no name
	if o.Received != nil {
		done, err := o.Received(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	return work(packed)
}

// Over is a Feed of layers that lie over an image. See shows it the layers of that one first, lowest
// first.
type Over interface {
	Feed
	See(ctx context.Context, r io.Reader) error
}

// Changes reads an archive from r, whose layers lie over an image that is stored, and calls take with
// what open finds in it. Errors are those of Import.
func Changes(ctx context.Context, r io.Reader, o Options, open func(ctx context.Context, packed *os.File, l Limits) (Head, Over, error), take func(Head, Over) error) error {
	if err := o.Limits.Validate(); err != nil {
		return err
	}
	return received(ctx, r, o, func(packed *os.File) error {
		head, feed, err := open(ctx, packed, o.Limits)
		if err != nil {
			return err
		}
		defer feed.Close()
		if err := head.check(o.Limits); err != nil {
			return err
		}
		return take(head, feed)
	})
}

// StoreOptions says how an image of a Feed is stored.
type StoreOptions struct {
	Name     string // of the image; empty takes the one name that it states
	Limits   Limits
	Labels   map[string]string // to keep with the image
	Progress func(string)      // gets a line per step; nil gets none
	Target   digest.Digest     // that its name led to in the registry; empty: it came from none
	Layers   []digest.Digest   // as they are in the registry
}

// Store stores the image of head, whose layers feed gives. What they say is checked as far as
// it is not the content of files.
func Store(ctx context.Context, o StoreOptions, head Head, feed Feed, sink Sink) (Result, error) {
	if err := head.check(o.Limits); err != nil {
		return Result{}, err
	}
	if head.Config.Labels[SnapshotLabel] != "" {
		return Result{}, sbxerr.WithRemedy(sbxerr.ImageFormat, "image.import", errors.New("it is a snapshot: the changes to an image, and not the image"), "import it as one: caisson snapshot import FILE")
	}
	name, err := choose(o.Name, head.Names)
	if err != nil {
		return Result{}, err
	}
	config, err := head.Config.clean()
	if err != nil {
		return Result{}, err
	}
	s := storing{limits: o.Limits, sink: sink, progress: orSilent(o.Progress)}
	if o.Target == "" {
		s.progress(fmt.Sprintf("the archive is a %s of %d layers", head.Kind, head.Layers))
	}
	return s.store(ctx, head.Layers, feed, Result{
		Name: name, Kind: head.Kind, Source: head.Digest, Target: o.Target, Labels: o.Labels, Builds: head.Config.ForBuilds, layers: o.Layers,
	}, config)
}

// check refuses what no image can be.
func (h Head) check(l Limits) error {
	kinds := map[string]bool{KindOCILayout: true, KindDockerArchive: true, KindRootFS: true, KindRegistry: true}
	if !kinds[h.Kind] || h.Layers < 0 || h.Layers > l.Layers || h.Digest != "" && h.Digest.Validate() != nil {
		return sbxerr.New(sbxerr.ImageFormat, "image.head", "an image of the kind %s with %d layers and the digest %s is none", flow.Quote(h.Kind), h.Layers, flow.Quote(string(h.Digest)))
	}
	return nil
}

// Again calls store until no damaged copy of a blob is in the way.
func Again(store func() (Result, error)) (Result, error) { return again(store) }

func again(store func() (Result, error)) (Result, error) {
	for try := 0; ; try++ {
		r, err := store()
		if !errors.Is(err, ErrStoreAgain) || try > maxLayers+1 { // layers and two documents
			return r, err
		}
	}
}

// storing is what the layers of an image are stored with.
type storing struct {
	limits   Limits
	sink     Sink
	progress func(string)
}

// store writes the n layers of feed, and the image.
func (s storing) store(ctx context.Context, n int, feed Feed, r Result, config v1.ImageConfig) (_ Result, err error) {
	b := newBuilder(s.sink, s.limits, s.progress)
	defer func() { err = b.abandonAfter(ctx, err) }()
	for i := range n {
		b.progress(fmt.Sprintf("filtering layer %d of %d", i+1, n))
		err := feed.Next(ctx)
		if err == nil {
			err = b.layer(ctx, func(w io.Writer) error { return feed.Layer(ctx, w) })
		}
		if err != nil {
			return Result{}, flow.Coded(sbxerr.ImageFormat, "image.import", fmt.Errorf("layer %d of %d: %w", i+1, n, err))
		}
	}
	if b.report, err = feed.Report(ctx); err != nil {
		return Result{}, err
	}
	return b.commit(ctx, r, config)
}

func orSilent(progress func(string)) func(string) {
	if progress == nil {
		return func(string) {}
	}
	return progress
}
