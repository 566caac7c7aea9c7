package filter

import (
	"context"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

const opPull = "image.pull"

// Documents gives the content of a manifest, an index or a configuration of one repository of
// a registry. What it gives is not trusted: sizes and digests are verified here.
type Documents func(ctx context.Context, d ocispec.Descriptor) ([]byte, error)

// Remote is the image of this host's platform in a registry, before its layers are fetched.
type Remote struct {
	image.Remote

	source source
	limits Limits
}

// Find reads the documents of the image that target leads to. Of an index with several
// images for this platform the first is taken.
func Find(ctx context.Context, documents Documents, target ocispec.Descriptor, l Limits) (*Remote, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	s := search{first: true, seen: map[digest.Digest]bool{}, content: func(d ocispec.Descriptor) ([]byte, error) {
		if d.Size > l.DocumentBytes || d.Size < 0 {
			return nil, sbxerr.New(sbxerr.ImageTooBig, opPull, "document %s has %d bytes: at most %d", d.Digest, d.Size, l.DocumentBytes)
		}
		return documents(ctx, bare(d))
	}}
	if err := s.visit(target, nil, 1); err != nil {
		return nil, err
	}
	if err := s.check("the registry's image"); err != nil {
		return nil, err
	}
	r := &Remote{Remote: image.Remote{Target: target, Source: bare(s.found.desc)}, limits: l}
	var err error
	r.source, err = s.found.source(image.KindRegistry, l, r.layer)
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
	r.Layers = append(r.Layers, bare(d))
	return nil, nil // see Open
}

// bare is a descriptor without what an image says of itself. Content at other addresses
// is never fetched (CVE-2020-15157), and content inside a descriptor is not read.
func bare(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

// Open returns the image with its layers, of which open opens the i-th. The first are stored
// ones, by their digests: the filter changes nothing in what it wrote itself.
func (r *Remote) Open(stored []digest.Digest, open func(ctx context.Context, i int) (io.ReadCloser, error)) *Source {
	src := r.source
	for i := range src.layers {
		l := &src.layers[i]
		l.open = func(ctx context.Context) (io.ReadCloser, error) { return open(ctx, i) }
		if i < len(stored) {
			l.digest, l.diffID, l.packed = stored[i], "", flow.Plain
		}
	}
	return newSource(src, r.limits)
}
