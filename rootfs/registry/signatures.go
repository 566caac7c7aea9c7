package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// Where cosign puts signatures:
// https://github.com/sigstore/cosign/blob/v3.1.3/specs/SIGNATURE_SPEC.md and
// https://github.com/sigstore/cosign/blob/v3.1.3/specs/BUNDLE_SPEC.md
const (
	bundlePrefix  = "application/vnd.dev.sigstore.bundle"
	simpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureKey  = "dev.cosignproject.cosign/signature"
)

// errEnough ends a look at signatures.
var errEnough = errors.New("enough signatures were read")

// signatures writes the signatures of some digests, one at a time: nothing of one is kept while the
// next is read.
func (s *session) signatures(ctx context.Context, of []digest.Digest, w io.Writer) error {
	out := json.NewEncoder(w)
	f := search{s: s, visit: func(sig imagework.Signature) error { return out.Encode(sig) }}
	for _, d := range of {
		err := f.of(ctx, d)
		if errors.Is(err, errEnough) {
			return out.Encode(imagework.Signature{More: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// search reads the signatures of an image.
type search struct {
	s       *session
	visit   func(imagework.Signature) error
	read    int           // documents
	current digest.Digest // whose signatures are read
}

// of reads the signatures of d: bundles that refer to it, and the older form under a tag
// made of it. It ends with errEnough after MaxSignatures documents in all.
func (f *search) of(ctx context.Context, d digest.Digest) error {
	f.current = d
	fetcher, ok := f.s.fetcher.(remotes.ReferrersFetcher)
	if !ok {
		return sbxerr.New(sbxerr.Internal, "registry.signatures", "the fetcher knows no referrers")
	}
	list, err := fetcher.FetchReferrers(ctx, d)
	if err != nil {
		return f.s.explain(err)
	}
	for _, m := range list {
		if !strings.HasPrefix(m.ArtifactType, bundlePrefix) && m.ArtifactType != "" {
			continue
		}
		if err := f.manifest(ctx, m); err != nil {
			return err
		}
	}
	return f.tagged(ctx, d)
}

// tagged reads the tag sha256-HEX.sig.
func (f *search) tagged(ctx context.Context, d digest.Digest) error {
	tag := fmt.Sprintf("%s:%s-%s.sig", f.s.Repository, d.Algorithm(), d.Encoded())
	_, m, err := f.s.resolver.Resolve(ctx, tag)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return f.s.explain(err)
	}
	return f.manifest(ctx, m)
}

// manifest reads the signatures of a manifest.
func (f *search) manifest(ctx context.Context, d ocispec.Descriptor) error {
	var m ocispec.Manifest
	data, err := f.document(ctx, d)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return fmt.Errorf("signatures %s: %w", d.Digest, err)
	}
	for _, l := range m.Layers {
		if err := f.layer(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// layer reads the signature that a layer of a manifest is. Other layers are skipped.
func (f *search) layer(ctx context.Context, l ocispec.Descriptor) error {
	switch {
	case l.MediaType == simpleSigning:
		value, err := base64.StdEncoding.DecodeString(l.Annotations[signatureKey])
		if err != nil {
			return nil
		}
		payload, err := f.document(ctx, l)
		if err != nil {
			return err
		}
		return f.visit(imagework.Signature{Of: f.current, Payload: payload, Value: value})
	case strings.HasPrefix(l.MediaType, bundlePrefix):
		data, err := f.document(ctx, l)
		if err != nil {
			return err
		}
		var bundle struct {
			Envelope json.RawMessage `json:"dsseEnvelope"`
		}
		if json.Unmarshal(data, &bundle) == nil && bundle.Envelope != nil {
			return f.visit(imagework.Signature{Of: f.current, Envelope: bundle.Envelope})
		}
	}
	return nil
}

// document reads one of the documents that a search may read.
func (f *search) document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if f.read++; f.read > imagework.MaxSignatures {
		return nil, errEnough
	}
	return f.s.signature(ctx, d)
}

// signature fetches a document whose digest is verified.
func (s *session) signature(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if d.Size < 0 || d.Size > imagework.MaxSigned {
		return nil, sbxerr.New(sbxerr.ImageTooBig, "registry.signatures", "signature %s has %d bytes: at most %d", d.Digest, d.Size, imagework.MaxSigned)
	}
	if err := d.Digest.Validate(); err != nil {
		return nil, sbxerr.New(sbxerr.ImageFormat, "registry.signatures", "signature: %w", err)
	}
	data, err := s.document(ctx, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
	if err == nil && d.Digest.Algorithm().FromBytes(data) != d.Digest {
		err = sbxerr.New(sbxerr.ImageFormat, "registry.signatures", "signature %s: the content's digest differs", d.Digest)
	}
	return data, err
}
