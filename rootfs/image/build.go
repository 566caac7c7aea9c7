package image

import (
	"context"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"maps"
	goruntime "runtime"
	"slices"

	"github.com/opencontainers/go-digest"
	chains "github.com/opencontainers/image-spec/identity"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// Build makes an image of one layer, a clean tar that write gives. The same tar makes the same
// image, to the byte. write is called again where the sink held a damaged copy.
func Build(ctx context.Context, o BuildOptions, sink Sink, write func(io.Writer) (Report, error)) (Result, error) {
	config, configErr := cleanConfig(o.Config)
	if err := errors.Join(CheckName(o.Name), o.checkKind(), o.Limits.Validate(), configErr); err != nil {
		return Result{}, sbxerr.Wrap(sbxerr.Of(err), "image.build", err)
	}
	return again(func() (Result, error) { return o.store(ctx, config, sink, write) })
}

func (o BuildOptions) store(ctx context.Context, config ocispec.ImageConfig, sink Sink, write func(io.Writer) (Report, error)) (_ Result, err error) {
	b := newBuilder(sink, o.Limits, orSilent(o.Progress))
	defer func() { err = b.abandonAfter(ctx, err) }()
	err = b.layer(ctx, func(w io.Writer) (err error) {
		b.report, err = write(w)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	return b.commit(ctx, Result{Name: o.Name, Kind: o.Kind}, config)
}

func (o BuildOptions) checkKind() error {
	if kinds := []string{KindEmbedded, KindFromHost, KindRootFS}; !slices.Contains(kinds, o.Kind) {
		return sbxerr.New(sbxerr.Config, "image.build", "kind %s is none of %q", flow.Quote(o.Kind), kinds)
	}
	return nil
}

// builder puts an image together in a sink.
type builder struct {
	sink     Sink
	written  *flow.Budget // of the layers
	report   Report
	progress func(string)
	layers   []ocispec.Descriptor
	stored   []ocispec.Descriptor // all that the sink keeps for this image
	unpacked chan struct{}        // closed when the latest layer is; nil before the first
}

func newBuilder(sink Sink, l Limits, progress func(string)) *builder {
	return &builder{sink: sink, written: &flow.Budget{What: "the image", Max: l.Bytes}, progress: progress}
}

// layer stores the uncompressed layer that write writes.
func (b *builder) layer(ctx context.Context, write func(io.Writer) error) error {
	d, err := b.store(ctx, ocispec.MediaTypeImageLayer, func(w io.Writer) error { return write(flow.MeteredWriter{W: w, B: b.written}) })
	if err != nil {
		return err
	}
	b.layers = append(b.layers, d)
	b.unpack(ctx)
	return nil
}

// unpack unpacks the latest layer beside the storing of the next one.
func (b *builder) unpack(ctx context.Context) {
	below, done, layers := b.unpacked, make(chan struct{}), slices.Clone(b.layers)
	b.unpacked = done
	go func() {
		defer close(done)
		if below != nil {
			<-below
		}
		if ctx.Err() == nil {
			b.sink.Unpack(ctx, layers)
		}
	}()
}

// wait waits for what unpack began.
func (b *builder) wait() {
	if b.unpacked != nil {
		<-b.unpacked
	}
}

// abandonAfter lets go of what was stored if err ended the work, and returns err:
// an image that failed must not take up the room that the next one needs.
func (b *builder) abandonAfter(ctx context.Context, err error) error {
	b.wait()
	if err == nil || len(b.stored) == 0 {
		return err
	}
	if left := b.sink.Forget(context.WithoutCancel(ctx), b.stored); left != nil {
		return errors.Join(err, flow.Coded(sbxerr.Engine, "image.abandon", left))
	}
	return err
}

// commit stores the documents and names the image.
func (b *builder) commit(ctx context.Context, r Result, config ocispec.ImageConfig) (Result, error) {
	if err := r.Builds.check(); err != nil {
		return Result{}, err
	}
	c := Document{
		Created:  r.Created,
		Platform: ocispec.Platform{Architecture: goruntime.GOARCH, OS: "linux"},
		Config:   Config{config, r.Builds},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}},
	}
	for _, l := range b.layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.Digest) // not packed, so the same
	}
	cd, err := b.document(ctx, ocispec.MediaTypeImageConfig, c)
	if err != nil {
		return Result{}, err
	}
	r.Manifest, err = b.document(ctx, ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    cd,
		Layers:    slices.Concat([]ocispec.Descriptor{}, b.layers),
	})
	if err != nil {
		return Result{}, err
	}
	r.Report = b.report.clean()
	labels, err := r.labels()
	if err != nil {
		return Result{}, err
	}
	if err := flow.CtxErr(ctx); err != nil {
		return Result{}, err
	}
	b.progress("storing " + r.Name)
	b.wait()
	if err := b.sink.Commit(ctx, r.Name, r.Manifest, labels); err != nil {
		return Result{}, flow.Coded(sbxerr.Engine, "image.commit", err)
	}
	return r, nil
}

// clean is r without what no filter says.
func (r Report) clean() Report {
	known := map[string]int64{}
	for _, key := range []string{StripDevice, StripFIFO, StripSpecial, StripWhiteout, StripSetuid, StripSetgid, StripSticky, StripCapability, StripXattr} {
		if n := r.Stripped[key]; n > 0 {
			known[key] = n
		}
	}
	return Report{Entries: max(0, r.Entries), Bytes: max(0, r.Bytes), Stripped: known}
}

func (r Result) labels() (map[string]string, error) {
	report, err := json.Marshal(r.Report)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "image.commit", err)
	}
	labels := map[string]string{LabelKind: r.Kind, LabelReport: string(report)}
	maps.Copy(labels, r.Labels)
	if r.Source != "" {
		labels[LabelSource] = r.Source.String()
	}
	if r.Target != "" {
		labels[LabelTarget] = r.Target.String()
	}
	for i, chain := range chains.ChainIDs(slices.Clone(r.layers)) {
		labels[LabelLayer(i)] = chain.String()
	}
	return labels, nil
}

func (b *builder) document(ctx context.Context, mediaType string, v any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, sbxerr.Wrap(sbxerr.Internal, "image.document", err)
	}
	return b.store(ctx, mediaType, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// store gives a blob to the sink and remembers it.
func (b *builder) store(ctx context.Context, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	d, err := store(ctx, b.sink, mediaType, write)
	if err == nil {
		b.stored = append(b.stored, d)
	}
	return d, err
}

// store gives a blob to sink and makes sure that it has stored what was
// written. Errors keep their origin: those of write are write's, those of the
// sink the sink's.
func store(ctx context.Context, sink Sink, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	const op = "image.store"
	var sum summer
	var cause error
	d, err := sink.Blob(ctx, mediaType, func(w io.Writer) error {
		sum = summer{w: flow.ContextWriter(ctx, w), h: digest.SHA256.Hash()}
		cause = write(&sum)
		return cause
	})
	switch {
	case sum.err != nil:
		return ocispec.Descriptor{}, flow.Coded(sbxerr.Engine, op, sum.err)
	case cause != nil:
		return ocispec.Descriptor{}, cause
	case err != nil:
		return ocispec.Descriptor{}, flow.Coded(sbxerr.Engine, op, err)
	case sum.h == nil || d.Size != sum.n || d.Digest != digest.NewDigest(digest.SHA256, sum.h):
		return ocispec.Descriptor{}, sbxerr.New(sbxerr.Internal, op, "the store's descriptor %s of %d bytes is not of what was written", d.Digest, d.Size)
	}
	return ocispec.Descriptor{MediaType: mediaType, Digest: d.Digest, Size: d.Size}, nil
}

// summer passes on what is written and remembers what it was.
type summer struct {
	w   io.Writer
	h   hash.Hash
	n   int64
	err error // of w
}

func (s *summer) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.h.Write(p[:n])
	s.n += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}

// Discard is a Sink that computes descriptors and stores nothing. It answers
// what an image would be.
var Discard Sink = discard{}

type discard struct{}

func (discard) Blob(_ context.Context, mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	s := summer{w: io.Discard, h: digest.SHA256.Hash()}
	if err := write(&s); err != nil {
		return ocispec.Descriptor{}, err
	}
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.NewDigest(digest.SHA256, s.h), Size: s.n}, nil
}

func (discard) Unpack(context.Context, []ocispec.Descriptor) {}

func (discard) Commit(context.Context, string, ocispec.Descriptor, map[string]string) error {
	return nil
}

func (discard) Forget(context.Context, []ocispec.Descriptor) error { return nil }
