package registry

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const opSpool = "registry.spool"

// partPrefix begins the names of what is in the spool.
const partPrefix = "pull-"

// partAge is how long a part waits for the pull to be repeated.
const partAge = 24 * time.Hour

// spool holds layers until they are filtered. Each user has its own: a private layer of
// one must not come to another who knows its digest.
type spool struct {
	dir string
	uid uint32
}

// part is a layer in the spool, whole or in part.
type part struct {
	path string // empty if the file has no name
	file *os.File
	have int64
	sum  hash.Hash // of the first have bytes
}

// name is that of a layer's part.
func (s spool) name(d digest.Digest) string {
	return fmt.Sprintf("%s%d-%s-%s", partPrefix, s.uid, d.Algorithm(), d.Encoded())
}

// keepOnly removes the user's parts of other images, so that pulls that never end do not
// fill the disk. Those of a pull that is under way stay.
func (s spool) keepOnly(layers []ocispec.Descriptor) error {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		ours := strings.HasPrefix(e.Name(), fmt.Sprintf("%s%d-", partPrefix, s.uid))
		if ours && !slices.ContainsFunc(layers, func(d ocispec.Descriptor) bool { return s.name(d.Digest) == e.Name() }) {
			errs = append(errs, removeIdle(filepath.Join(s.dir, e.Name())))
		}
	}
	return sbxerr.Wrap(sbxerr.StateDir, opSpool, errors.Join(errs...))
}

// removeIdle removes a part that no pull has open.
func removeIdle(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close() // it was only locked
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return owndir.Unlink(path)
}

// open returns what is there of a layer. While another pull fetches the same layer, this
// one works in a file of its own.
func (s spool) open(d ocispec.Descriptor) (*part, error) {
	p := &part{path: filepath.Join(s.dir, s.name(d.Digest))}
	var err error
	p.file, err = os.OpenFile(p.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
	}
	if err := unix.Flock(int(p.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		p.file.Close() // it is another's
		p.path = ""
		if p.file, err = os.OpenFile(s.dir, os.O_RDWR|unix.O_TMPFILE, 0o600); err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
		}
	}
	p.sum = d.Digest.Algorithm().Hash()
	if p.have, err = io.Copy(p.sum, p.file); err == nil && p.have > d.Size {
		err = p.restart()
	}
	if err != nil {
		return nil, errors.Join(sbxerr.Wrap(sbxerr.StateDir, opSpool, err), p.drop())
	}
	return p, nil
}

// restart empties the part.
func (p *part) restart() error {
	p.have = 0
	p.sum.Reset()
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return p.file.Truncate(0)
}

// Write implements io.Writer.
func (p *part) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.have += int64(n)
	p.sum.Write(b[:n])
	return n, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
}

// drop removes the part.
func (p *part) drop() error {
	var err error
	if p.path != "" {
		err = owndir.Unlink(p.path)
	}
	return sbxerr.Wrap(sbxerr.StateDir, opSpool, errors.Join(err, p.file.Close()))
}

// sweep removes the parts of pulls that were not repeated.
func (c *Client) sweep() error {
	entries, err := os.ReadDir(c.c.SpoolDir)
	errs := []error{err}
	for _, e := range entries {
		info, err := e.Info()
		if strings.HasPrefix(e.Name(), partPrefix) && err == nil && time.Since(info.ModTime()) > partAge {
			errs = append(errs, removeIdle(filepath.Join(c.c.SpoolDir, e.Name())))
		}
	}
	return sbxerr.Wrap(sbxerr.StateDir, opSpool, errors.Join(errs...))
}

var errShort = errors.New("the registry ends the layer early")

// fetch fetches all of a layer and verifies it. A part of an earlier pull that does not
// fit is fetched anew.
func (s *Session) fetch(ctx context.Context, f *fetch) (*part, error) {
	d := f.desc
	p, err := s.spool.open(d)
	if err != nil {
		return nil, err
	}
	resumed := p.have > 0
	f.received.Store(p.have)
	err = s.fill(ctx, f, p)
	if err == nil && digest.NewDigest(d.Digest.Algorithm(), p.sum) != d.Digest && resumed {
		if err = p.restart(); err == nil {
			err = s.fill(ctx, f, p)
		}
	}
	if got := digest.NewDigest(d.Digest.Algorithm(), p.sum); err == nil && got != d.Digest {
		err = sbxerr.New(sbxerr.ImageFormat, "registry.fetch", "layer %s: the content's digest is %s", d.Digest, got)
	}
	if err == nil {
		return p, nil
	}
	err = explain(ctx, s.ref, err)
	if errors.Is(err, sbxerr.Registry) || errors.Is(err, sbxerr.Deadline) || errors.Is(err, sbxerr.Canceled) {
		return nil, errors.Join(err, p.file.Close()) // to go on from here later
	}
	return nil, errors.Join(err, p.drop())
}

// fill appends to p what it lacks. Five failures in a row without a byte end it.
func (s *Session) fill(ctx context.Context, f *fetch, p *part) error {
	for try := 1; p.have < f.desc.Size; try++ {
		before := p.have
		err := s.append(ctx, f, p)
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		if p.have > before {
			try = 1
		}
		if try == maxTries {
			return sbxerr.New(sbxerr.Registry, "registry.fetch", "layer %s: after %d of %d bytes: %w", f.desc.Digest, p.have, f.desc.Size, err)
		}
		if err := sleep(ctx, s.pause<<(try-1)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) append(ctx context.Context, f *fetch, p *part) error {
	r, err := s.fetcher.Fetch(context.WithValue(ctx, layerKey{}, true), f.desc)
	if err != nil {
		return err
	}
	defer r.Close() // it was only read
	if seeker, ok := r.(io.Seeker); ok && p.have > 0 {
		if _, err := seeker.Seek(p.have, io.SeekStart); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.MultiWriter(p, counter{f}), r)
	switch {
	case errdefs.IsFailedPrecondition(err):
		return sbxerr.New(sbxerr.ImageFormat, "registry.fetch", "layer %s has more than the %d bytes that are stated", f.desc.Digest, f.desc.Size)
	case err == nil && p.have < f.desc.Size:
		return errShort
	}
	return err
}

// counter counts what was received.
type counter struct{ f *fetch }

func (c counter) Write(b []byte) (int, error) {
	c.f.received.Add(int64(len(b)))
	return len(b), nil
}
