package image

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	chains "github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const opPull = "image.pull"

// Repository gives the content of one repository of a registry. What it gives is not
// trusted: sizes and digests are verified here.
type Repository interface {
	// Document returns the content of a manifest, an index or a configuration.
	Document(ctx context.Context, d ocispec.Descriptor) ([]byte, error)
	// Layers begins to fetch layers, in this order.
	Layers(ctx context.Context, layers []ocispec.Descriptor)
	// Layer waits for all of a layer and opens it. The caller closes it.
	Layer(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
}

// Remote is the image of this host's platform in a registry, before its layers are fetched.
type Remote struct {
	Target ocispec.Descriptor   // that its name leads to
	Source ocispec.Descriptor   // its own manifest: Target, or listed by it
	Layers []ocispec.Descriptor // as the registry has them, lowest first

	repo   Repository
	source source
	limits Limits
}

// Find reads the documents of the image that target leads to. Of an index with several
// images for this platform the first is taken.
func Find(ctx context.Context, repo Repository, target ocispec.Descriptor, l Limits) (*Remote, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	s := search{first: true, seen: map[digest.Digest]bool{}, content: func(d ocispec.Descriptor) ([]byte, error) {
		if d.Size > l.DocumentBytes || d.Size < 0 {
			return nil, sbxerr.New(sbxerr.ImageTooBig, opPull, "document %s has %d bytes: at most %d", d.Digest, d.Size, l.DocumentBytes)
		}
		return repo.Document(ctx, bare(d))
	}}
	if err := s.visit(target, nil, 1); err != nil {
		return nil, err
	}
	if err := s.check("the registry's image"); err != nil {
		return nil, err
	}
	r := &Remote{Target: target, Source: s.found.desc, repo: repo, limits: l}
	var err error
	r.source, err = s.found.source(KindRegistry, l, func(d ocispec.Descriptor) (opener, error) { return r.layer(d) })
	return r, err
}

// layer adds d to the layers, once it may be fetched.
func (r *Remote) layer(d ocispec.Descriptor) (opener, error) {
	if err := checkDigest(d.Digest); err != nil {
		return nil, sbxerr.Wrap(sbxerr.ImageFormat, opPull, err)
	}
	sum := max(0, d.Size)
	for _, l := range r.Layers {
		sum += l.Size
	}
	if d.Size < 0 || sum > r.limits.Bytes {
		return nil, sbxerr.New(sbxerr.ImageTooBig, opPull, "the packed layers have more than %d bytes", r.limits.Bytes)
	}
	d = bare(d)
	r.Layers = append(r.Layers, d)
	return func(ctx context.Context) (io.ReadCloser, error) { return r.repo.Layer(ctx, d) }, nil
}

// bare is a descriptor without what an image says of itself. Content at other addresses
// is never fetched (CVE-2020-15157), and content inside a descriptor is not read.
func bare(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

// StoreOptions says how a Remote is stored.
type StoreOptions struct {
	Name     string
	Labels   map[string]string // to keep with the image
	Progress func(string)      // gets a line per step; nil gets none
	// Ready is called with each layer that is there, and waits until the work may begin.
	// What it returns is called when the layer is stored. Nil does not wait.
	Ready func(context.Context) (done func(), err error)
	// Known returns the stored layer that was made of the registry's layers of a chain ID,
	// as LabelLayer has it, and false for none. Nil knows none.
	Known func(chain digest.Digest) (digest.Digest, bool)
	// Open opens a layer that Known returned. The caller closes it.
	Open func(context.Context, digest.Digest) (io.ReadCloser, error)
}

// Store fetches the layers, passes them through the filter and commits the image. Layers
// that Known has are not fetched: the filter changes nothing in what it wrote itself.
func (r *Remote) Store(ctx context.Context, o StoreOptions, sink Sink) (Result, error) {
	if err := CheckName(o.Name); err != nil {
		return Result{}, err
	}
	config, err := cleanConfig(r.source.config)
	if err != nil {
		return Result{}, err
	}
	src := r.source
	src.layers = slices.Clone(src.layers)
	known := r.useKnown(ctx, src.layers, o)
	r.repo.Layers(ctx, r.Layers[known:])
	s := storing{limits: r.limits, sink: sink, progress: orSilent(o.Progress), layer: o.Ready}
	result := Result{Name: o.Name, Kind: KindRegistry, Source: r.Source.Digest, Target: r.Target.Digest, Labels: o.Labels, layers: r.digests()}
	return again(func() (Result, error) { return s.store(ctx, src, result, config) })
}

// useKnown replaces the lowest layers by those that are stored, and returns their number.
func (r *Remote) useKnown(ctx context.Context, layers []sourceLayer, o StoreOptions) int {
	if o.Known == nil {
		return 0
	}
	for i, chain := range chains.ChainIDs(r.digests()) {
		stored, ok := o.Known(chain)
		if !ok {
			return i
		}
		open := func(ctx context.Context) (io.ReadCloser, error) { return o.Open(ctx, stored) }
		blob, err := open(ctx)
		if err != nil { // it was removed meanwhile
			return i
		}
		blob.Close() // it is opened again when it is read
		layers[i] = sourceLayer{digest: stored, packed: plain, open: open}
	}
	return len(layers)
}

// digests of the layers in the registry.
func (r *Remote) digests() []digest.Digest {
	var list []digest.Digest
	for _, l := range r.Layers {
		list = append(list, l.Digest)
	}
	return list
}

// LabelLayer is the label with the chain ID of the registry's layers 0 to i.
func LabelLayer(i int) string { return fmt.Sprintf("caisson.image.layer.%d", i) }
