package registry

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
)

// signed takes an image if the key signed its own digest or that of its index.
func (s *session) signed(ctx context.Context, found image.Remote) error {
	key, err := cryptoutils.UnmarshalPEMToPublicKey(s.Key)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "registry.verify", err)
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "registry.verify", err)
	}
	seen := 0
	var first error
	var valid bool
	look := search{s: s}
	for _, d := range slices.Compact([]digest.Digest{found.Target.Digest, found.Source.Digest}) {
		look.visit = func(sig cosignature) error {
			err := sig.verify(verifier, d)
			if valid = err == nil; valid {
				return errEnough
			}
			if seen++; seen == 1 {
				first = err
			}
			return nil
		}
		err := look.of(ctx, d)
		switch {
		case valid:
			return nil
		case errors.Is(err, errEnough):
			return sbxerr.WithRemedy(sbxerr.ImageUnverified, "registry.verify", fmt.Errorf("%s has more than %d documents of signatures, and none of the first is valid; required: %s", s.Name, maxSignatures, s.Rule),
				"remove signatures that are not yours from the registry")
		case err != nil:
			return err
		}
	}
	if seen == 0 {
		return sbxerr.New(sbxerr.ImageUnverified, "registry.verify", "%s has no signature; required: %s", s.Name, s.Rule)
	}
	return sbxerr.New(sbxerr.ImageUnverified, "registry.verify", "none of %d signatures of %s is valid; required: %s: %w", seen, s.Name, s.Rule, first)
}

// verify reports why the signature is not of d by the key.
func (s cosignature) verify(v signature.Verifier, d digest.Digest) error {
	if s.envelope != nil {
		return verifyEnvelope(v, s.envelope, d)
	}
	if err := v.VerifySignature(bytes.NewReader(s.value), bytes.NewReader(s.payload)); err != nil {
		return fmt.Errorf("verify the signature: %w", err)
	}
	return checkPayload(s.payload, d)
}
