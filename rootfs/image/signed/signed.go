// Package signed verifies signatures of images. It runs in caisson-images, see package
// rootfs/imageproc, in a process that has no connection to the registry: one that sends something
// that breaks the process that asks it has no say here.
package signed

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

const op = "registry.verify"

// What cosign signs:
// https://github.com/sigstore/cosign/blob/v3.1.3/specs/SIGNATURE_SPEC.md and
// https://github.com/sigstore/cosign/blob/v3.1.3/specs/BUNDLE_SPEC.md
const (
	statementType   = "application/vnd.in-toto+json"
	payloadType     = "cosign container image signature"
	cosignPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// Check takes an image if one of the signatures in list is of one of its digests, by the key.
func Check(r imagework.Signed, of []digest.Digest, list io.Reader) error {
	key, err := cryptoutils.UnmarshalPEMToPublicKey(r.Key)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	seen := 0
	var first error
	for in := json.NewDecoder(list); ; {
		var s imagework.Signature
		err := in.Decode(&s)
		switch {
		case errors.Is(err, io.EOF) && seen == 0:
			return sbxerr.New(sbxerr.ImageUnverified, op, "%s has no signature; required: %s", r.Name, r.Rule)
		case errors.Is(err, io.EOF):
			return sbxerr.New(sbxerr.ImageUnverified, op, "none of %d signatures of %s is valid; required: %s: %w", seen, r.Name, r.Rule, first)
		case err != nil:
			return sbxerr.Wrap(sbxerr.ImageFormat, op, err)
		case s.More:
			return sbxerr.WithRemedy(sbxerr.ImageUnverified, op, fmt.Errorf("%s has more than %d documents of signatures, and none of the first is valid; required: %s", r.Name, imagework.MaxSignatures, r.Rule),
				"remove signatures that are not yours from the registry")
		case !slices.Contains(of, s.Of):
			return sbxerr.New(sbxerr.ImageFormat, op, "a signature of %s", sbxerr.Clip(s.Of.String()))
		}
		if err = verify(verifier, s); err == nil {
			return nil
		}
		if seen++; seen == 1 {
			first = err
		}
	}
}

// verify reports why the signature is not of its digest by the key.
func verify(v signature.Verifier, s imagework.Signature) error {
	if s.Envelope != nil {
		return verifyEnvelope(v, s.Envelope, s.Of)
	}
	if err := v.VerifySignature(bytes.NewReader(s.Value), bytes.NewReader(s.Payload)); err != nil {
		return fmt.Errorf("verify the signature: %w", err)
	}
	return checkPayload(s.Payload, s.Of)
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
