package registry

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// layersAhead is how many layers are fetched or wait to be read.
const layersAhead = 3

// Session fetches one image. It implements imagework.Repository.
type Session struct {
	Target ocispec.Descriptor // that the name leads to

	ref      Reference
	fetcher  remotes.Fetcher
	resolver remotes.Resolver
	spool    spool
	pause    time.Duration
	ctx      context.Context //nolint:containedctx // of the fetches, which outlive the calls that begin them
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup
	ahead    chan struct{}

	mu      sync.Mutex
	fetches map[string]*fetch // by digest
}

// The states of a layer.
const (
	Waiting  = "waiting"
	Fetching = "fetching"
	Fetched  = "fetched" // all of it is here
	Stored   = "stored"
)

// Progress is how far the fetch of a layer is.
type Progress struct {
	Size     int64 // in bytes
	Received int64
	State    string
}

// fetch is one layer on its way. An image may have a layer several times.
type fetch struct {
	desc     ocispec.Descriptor
	received atomic.Int64
	state    atomic.Value
	done     chan struct{} // closed when part and err are set

	part *part
	err  error
	uses int  // readers that will come or are there
	slot bool // it holds a place of ahead
}

// Document implements imagework.Repository.
func (s *Session) Document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	r, err := s.fetcher.Fetch(ctx, d)
	if err != nil {
		return nil, explain(ctx, s.ref, err)
	}
	defer r.Close() // it was only read
	data, err := io.ReadAll(io.LimitReader(r, d.Size+1))
	if err != nil {
		return nil, explain(ctx, s.ref, err)
	}
	if int64(len(data)) != d.Size {
		return nil, sbxerr.New(sbxerr.ImageFormat, "registry.document", "%s has %d bytes, stated are %d", d.Digest, len(data), d.Size)
	}
	return data, nil
}

// Layers implements imagework.Repository.
func (s *Session) Layers(_ context.Context, layers []ocispec.Descriptor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var queue []*fetch
	for _, d := range layers {
		if f := s.fetches[d.Digest.String()]; f != nil {
			f.uses++
			continue
		}
		queue = append(queue, s.add(d))
	}
	s.wg.Go(func() {
		kept := s.spool.keepOnly(layers)
		for _, f := range queue {
			if kept != nil {
				f.finish(nil, kept)
				continue
			}
			select {
			case s.ahead <- struct{}{}:
				f.slot = true
				s.wg.Go(func() { s.run(f) })
			case <-s.ctx.Done():
				f.finish(nil, explain(s.ctx, s.ref, s.ctx.Err()))
			}
		}
	})
}

// add registers a fetch. The caller holds mu.
func (s *Session) add(d ocispec.Descriptor) *fetch {
	f := &fetch{desc: d, done: make(chan struct{}), uses: 1}
	f.state.Store(Waiting)
	s.fetches[d.Digest.String()] = f
	return f
}

func (s *Session) run(f *fetch) {
	f.state.Store(Fetching)
	part, err := s.fetch(s.ctx, f)
	if err == nil {
		f.state.Store(Fetched)
	}
	f.finish(part, err)
}

func (f *fetch) finish(p *part, err error) {
	f.part, f.err = p, err
	close(f.done)
}

// Layer implements imagework.Repository. A layer that was read and is needed again is
// fetched again.
func (s *Session) Layer(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	s.mu.Lock()
	f := s.fetches[d.Digest.String()]
	if f == nil || f.uses == 0 {
		f = s.add(d)
		s.wg.Go(func() { s.run(f) })
	}
	s.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, explain(ctx, s.ref, ctx.Err())
	}
	if f.err != nil {
		return nil, f.err
	}
	return &layerReader{Reader: io.NewSectionReader(f.part.file, 0, f.desc.Size), session: s, fetch: f}, nil
}

// layerReader reads a layer out of the spool, which it then leaves.
type layerReader struct {
	io.Reader
	session *Session
	fetch   *fetch
}

// Close implements io.Closer.
func (l *layerReader) Close() error {
	l.session.mu.Lock()
	l.fetch.uses--
	last, slot := l.fetch.uses == 0, l.fetch.slot
	l.fetch.slot = false
	l.session.mu.Unlock()
	if slot { // also of a layer that is read again later, or its place could hold up all others
		<-l.session.ahead
	}
	if !last {
		return nil
	}
	l.fetch.state.Store(Stored)
	return l.fetch.part.drop()
}

// Progress returns how far the layer of that digest is, and false for one that is not
// fetched.
func (s *Session) Progress(digest string) (Progress, bool) {
	s.mu.Lock()
	f := s.fetches[digest]
	s.mu.Unlock()
	if f == nil {
		return Progress{}, false
	}
	state, _ := f.state.Load().(string)
	return Progress{Size: f.desc.Size, Received: f.received.Load(), State: state}, true
}

// Close ends the fetches, once err, the outcome of the whole, is known. What was fetched
// stays in the spool where the same pull may succeed later.
func (s *Session) Close(err error) error {
	s.cancel(nil)
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := errors.Is(err, sbxerr.Registry) || errors.Is(err, sbxerr.Deadline) || errors.Is(err, sbxerr.Canceled) || errors.Is(err, sbxerr.Busy)
	var errs []error
	for _, f := range s.fetches {
		switch {
		case f.part == nil || f.uses == 0:
		case keep:
			errs = append(errs, f.part.file.Close())
		default:
			errs = append(errs, f.part.drop())
		}
	}
	return errors.Join(errs...)
}
