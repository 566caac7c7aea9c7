package registry

import (
	"bytes"
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
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Where cosign puts signatures:
// https://github.com/sigstore/cosign/blob/v3.1.3/specs/SIGNATURE_SPEC.md and
// https://github.com/sigstore/cosign/blob/v3.1.3/specs/BUNDLE_SPEC.md
const (
	bundlePrefix    = "application/vnd.dev.sigstore.bundle"
	simpleSigning   = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureKey    = "dev.cosignproject.cosign/signature"
	statementType   = "application/vnd.in-toto+json"
	payloadType     = "cosign container image signature"
	cosignPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// Bounds of what is read of signatures.
const (
	maxSignatures = 64      // documents for one image: manifests of signatures, and signatures
	maxSigned     = 1 << 20 // bytes of one document
)

// cosignature is one signature that a registry has for an image.
type cosignature struct {
	envelope []byte // a DSSE envelope; else
	payload  []byte // what was signed
	value    []byte // its signature
}

// errEnough ends a look at signatures.
var errEnough = errors.New("enough signatures were read")

// search reads the signatures of an image one at a time: nothing of one is kept while the
// next is read.
type search struct {
	s     *session
	visit func(cosignature) error // ends the search with its error
	read  int                     // documents
}

// of reads the signatures of d: bundles that refer to it, and the older form under a tag
// made of it. It ends with errEnough after maxSignatures documents in all.
func (f *search) of(ctx context.Context, d digest.Digest) error {
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
		return f.visit(cosignature{payload: payload, value: value})
	case strings.HasPrefix(l.MediaType, bundlePrefix):
		data, err := f.document(ctx, l)
		if err != nil {
			return err
		}
		var bundle struct {
			Envelope json.RawMessage `json:"dsseEnvelope"`
		}
		if json.Unmarshal(data, &bundle) == nil && bundle.Envelope != nil {
			return f.visit(cosignature{envelope: bundle.Envelope})
		}
	}
	return nil
}

// document reads one of the documents that a search may read.
func (f *search) document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if f.read++; f.read > maxSignatures {
		return nil, errEnough
	}
	return f.s.signature(ctx, d)
}

// signature fetches a document whose digest is verified.
func (s *session) signature(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if d.Size < 0 || d.Size > maxSigned {
		return nil, sbxerr.New(sbxerr.ImageTooBig, "registry.signatures", "signature %s has %d bytes: at most %d", d.Digest, d.Size, maxSigned)
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

// checkPayload reports why a signed document of the older form is not about d.
func checkPayload(data []byte, d digest.Digest) error {
	var p struct {
		Critical struct {
			Type  string `json:"type"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if p.Critical.Type != payloadType || p.Critical.Image.Digest != d.String() {
		return fmt.Errorf("the signature is about %s, not about %s", sbxerr.Clip(p.Critical.Image.Digest), d)
	}
	return nil
}

// verifyEnvelope reports why a bundle's envelope is not a signature of d by the key.
func verifyEnvelope(v signature.Verifier, envelope []byte, d digest.Digest) error {
	var payload []byte
	wrapped := dsse.WrapVerifier(v, dsse.WithExpectedPayloadType(statementType), dsse.WithDecodedPayload(&payload))
	if err := wrapped.VerifySignature(bytes.NewReader(envelope), io.MultiReader()); err != nil {
		return fmt.Errorf("verify the signature: %w", err)
	}
	var statement struct {
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := json.Unmarshal(payload, &statement); err != nil {
		return err
	}
	if statement.PredicateType != cosignPredicate {
		return fmt.Errorf("it attests %q, which is no signature of an image", sbxerr.Clip(statement.PredicateType))
	}
	for _, subject := range statement.Subject {
		if subject.Digest[d.Algorithm().String()] == d.Encoded() {
			return nil
		}
	}
	return errors.New("the signature is about another image")
}
