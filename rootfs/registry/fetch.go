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
	"github.com/caisson-run/caisson/rootfs/imagework"
)

const opSpool = "registry.spool"

// layersAhead is how many layers are fetched or wait to be read.
const layersAhead = 3

// fetch is a layer on its way.
type fetch struct {
	desc  ocispec.Descriptor
	index int           // in the image
	after *fetch        // of the same layer below; nil: there is none
	ahead chan struct{} // has a place for each that was begun and not read
	done  chan struct{} // closed when part and err are set

	part *part
	err  error
}

// part is what is there of a layer, whole or not.
type part struct {
	file *os.File // the daemon's, who has its place in it, too
	have int64
	sum  hash.Hash // of the first have bytes
}

// fetchAll begins to fetch the layers from the first on, in their order.
func (s *session) fetchAll(ctx context.Context, first int, layers []ocispec.Descriptor) []*fetch {
	var all []*fetch
	ahead := make(chan struct{}, layersAhead)
	same := map[digest.Digest]*fetch{}
	for i, d := range layers[first:] {
		f := &fetch{desc: d, index: first + i, after: same[d.Digest], ahead: ahead, done: make(chan struct{})}
		same[d.Digest] = f
		all = append(all, f)
	}
	go func() {
		for _, f := range all {
			ahead <- struct{}{}
			go func() {
				defer close(f.done)
				f.part, f.err = s.fetch(ctx, f)
			}()
		}
	}()
	return all
}

// open waits for all of a layer.
func (f *fetch) open() (io.ReadCloser, error) {
	<-f.done
	if f.err != nil {
		return nil, f.err
	}
	return fetched{io.NewSectionReader(f.part.file, 0, f.desc.Size), f}, nil
}

// fetched reads a layer that is there.
type fetched struct {
	io.Reader
	f *fetch
}

// Close implements io.Closer.
func (r fetched) Close() error {
	<-r.f.ahead
	return r.f.part.file.Close()
}

// fetch fetches all of a layer and verifies it. A part of an earlier pull that does not
// fit is fetched anew.
func (s *session) fetch(ctx context.Context, f *fetch) (*part, error) {
	if f.after != nil {
		<-f.after.done
	}
	d := f.desc
	p, err := s.part(ctx, f)
	if err != nil {
		return nil, err
	}
	resumed := p.have > 0
	err = s.fill(ctx, f, p)
	if err == nil && digest.NewDigest(d.Digest.Algorithm(), p.sum) != d.Digest && resumed {
		if err = p.restart(); err == nil {
			err = s.fill(ctx, f, p)
		}
	}
	if got := digest.NewDigest(d.Digest.Algorithm(), p.sum); err == nil && got != d.Digest {
		err = sbxerr.New(sbxerr.ImageFormat, "registry.fetch", "layer %s: the content's digest is %s", d.Digest, got)
	}
	return p, s.explain(err)
}

// part gets what is there of a layer.
func (s *session) part(ctx context.Context, f *fetch) (*part, error) {
	file, err := s.asker.Ask(ctx, imagework.Ask{Layer: f.index})
	if err != nil {
		return nil, err
	}
	p := &part{file: file, sum: f.desc.Digest.Algorithm().Hash()}
	p.have, err = io.Copy(p.sum, io.NewSectionReader(file, 0, f.desc.Size+1))
	if err == nil && p.have > f.desc.Size {
		err = p.restart()
	}
	return p, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
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
func (s *session) fill(ctx context.Context, f *fetch, p *part) error {
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
		if err := sleep(ctx, s.Pause<<(try-1)); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) append(ctx context.Context, f *fetch, p *part) error {
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
	_, err = io.Copy(p, r)
	switch {
	case errdefs.IsFailedPrecondition(err):
		return sbxerr.New(sbxerr.ImageFormat, "registry.fetch", "layer %s has more than the %d bytes that are stated", f.desc.Digest, f.desc.Size)
	case err == nil && p.have < f.desc.Size:
		return errShort
	}
	return err
}
