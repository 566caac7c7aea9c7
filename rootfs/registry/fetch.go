package registry

import (
	"context"
	"errors"
	"hash"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const opSpool = "registry.spool"

// part is what is there of a layer, whole or not.
type part struct {
	file *os.File
	have int64
	sum  hash.Hash // of the first have bytes
}

// layer fetches all of a layer and verifies it. A part of an earlier pull that does not
// fit is fetched anew.
func (s *session) layer(ctx context.Context, d ocispec.Descriptor, file *os.File) error {
	p := &part{file: file, sum: d.Digest.Algorithm().Hash()}
	var err error
	if p.have, err = io.Copy(p.sum, io.NewSectionReader(file, 0, d.Size)); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
	}
	resumed := p.have > 0
	err = s.fill(ctx, d, p)
	if err == nil && digest.NewDigest(d.Digest.Algorithm(), p.sum) != d.Digest && resumed {
		if err = p.restart(); err == nil {
			err = s.fill(ctx, d, p)
		}
	}
	if got := digest.NewDigest(d.Digest.Algorithm(), p.sum); err == nil && got != d.Digest {
		err = sbxerr.New(sbxerr.ImageFormat, "registry.fetch", "layer %s: the content's digest is %s", d.Digest, got)
	}
	return err
}

// restart empties the part.
func (p *part) restart() error {
	p.have = 0
	p.sum.Reset()
	return p.file.Truncate(0)
}

// Write implements io.Writer.
func (p *part) Write(b []byte) (int, error) {
	n, err := p.file.WriteAt(b, p.have)
	p.have += int64(n)
	p.sum.Write(b[:n])
	return n, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
}

var errShort = errors.New("the registry ends the layer early")

// fill appends to p what it lacks. Five failures in a row without a byte end it.
func (s *session) fill(ctx context.Context, d ocispec.Descriptor, p *part) error {
	for try := 1; p.have < d.Size; try++ {
		before := p.have
		err := s.append(ctx, d, p)
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		if p.have > before {
			try = 1
		}
		if try == maxTries {
			return sbxerr.New(sbxerr.Registry, "registry.fetch", "layer %s: after %d of %d bytes: %w", d.Digest, p.have, d.Size, err)
		}
		if err := sleep(ctx, s.Pause<<(try-1)); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) append(ctx context.Context, d ocispec.Descriptor, p *part) error {
	r, err := s.fetcher.Fetch(context.WithValue(ctx, layerKey{}, true), d)
	if err != nil {
		return err
	}
	defer r.Close() // it was only read
	if seeker, ok := r.(io.Seeker); ok && p.have > 0 {
		if _, err := seeker.Seek(p.have, io.SeekStart); err != nil {
			return err
		}
	}
	_, err = io.Copy(p, r)
	switch {
	case errdefs.IsFailedPrecondition(err):
		return sbxerr.New(sbxerr.ImageFormat, "registry.fetch", "layer %s has more than the %d bytes that are stated", d.Digest, d.Size)
	case err == nil && p.have < d.Size:
		return errShort
	}
	return err
}
