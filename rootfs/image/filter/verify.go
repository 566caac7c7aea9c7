package filter

import (
	_ "crypto/sha256" // the algorithms that checkDigest takes must be linked in
	_ "crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// checkDigest reports whether d can be verified here.
func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("digest %s: %w", flow.Quote(string(d)), err)
	}
	if a := d.Algorithm(); a != digest.SHA256 && a != digest.SHA512 {
		return fmt.Errorf("digest %s: %w", flow.Quote(string(d)), digest.ErrDigestUnsupported)
	}
	return nil
}

// verifiedReader replaces the end of r by an error when what was read does not
// have the digest want. So whoever has seen io.EOF has seen the right content.
type verifiedReader struct {
	r    io.Reader
	h    hash.Hash
	want digest.Digest
}

// verified wraps r. An empty want says that there is nothing to hold r to.
func verified(r io.Reader, want digest.Digest) (io.Reader, error) {
	if want == "" {
		return r, nil
	}
	if err := checkDigest(want); err != nil {
		return nil, sbxerr.Wrap(sbxerr.ImageFormat, "image.verify", err)
	}
	return &verifiedReader{r: r, h: want.Algorithm().Hash(), want: want}, nil
}

func (v *verifiedReader) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.h.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if got := digest.NewDigest(v.want.Algorithm(), v.h); got != v.want {
			return 0, sbxerr.New(sbxerr.ImageFormat, "image.verify", "the content's digest is %s, stated is %s", got, v.want)
		}
	}
	return n, err
}
