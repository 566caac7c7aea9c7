package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

// spool holds layers until they are filtered. Each user has its own, for each repository: a private
// layer must not come to another who knows its digest, nor to another registry.
type spool struct {
	dir  string
	uid  uint32
	repo string // HOST/PATH
}

// part is a layer in the spool, whole or in part.
type part struct {
	path string // empty if the file has no name
	file *os.File
	size int64 // that it may have, in bytes
}

// name is that of a layer's part.
func (s spool) name(d digest.Digest) string {
	return fmt.Sprintf("%s%d-%s-%s-%s", partPrefix, s.uid, digest.FromString(s.repo).Encoded()[:16], d.Algorithm(), d.Encoded())
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
	p := &part{path: filepath.Join(s.dir, s.name(d.Digest)), size: d.Size}
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
	if p.length() > d.Size {
		if err := p.file.Truncate(0); err != nil {
			return nil, errors.Join(sbxerr.Wrap(sbxerr.StateDir, opSpool, err), p.drop(), p.file.Close())
		}
	}
	return p, nil
}

// again is the file for somebody who closes it.
func (p *part) again() (*os.File, error) {
	fd, err := unix.FcntlInt(p.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
	}
	return os.NewFile(uintptr(fd), p.path), nil
}

// length is what is there, in bytes.
func (p *part) length() int64 {
	info, err := p.file.Stat()
	if err != nil { // it is closed
		return 0
	}
	return info.Size()
}

// check fails where there is more than there may be.
func (p *part) check() error {
	if have := p.length(); have > p.size {
		return sbxerr.New(sbxerr.ImageProcess, opSpool, "a file for %d bytes has %d", p.size, have)
	}
	return nil
}

// drop empties the part, and removes its name. The process may have it open still.
func (p *part) drop() error {
	p.size = 0
	var err error
	if p.path != "" {
		err = owndir.Unlink(p.path)
	}
	return sbxerr.Wrap(sbxerr.StateDir, opSpool, errors.Join(err, p.file.Truncate(0)))
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
