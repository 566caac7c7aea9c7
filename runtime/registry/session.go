package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// layersAhead is how many layers are fetched or wait to be read.
const layersAhead = 3

// Session fetches one image, by a process of its own. It implements imagework.Repository.
type Session struct {
	Target ocispec.Descriptor // that the name leads to

	*dialer
	ref    Reference
	rule   rule
	spool  spool
	limits image.Limits
	p      *imageproc.Process
	ctx    context.Context //nolint:containedctx // of the fetches, which outlive the calls that begin them
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	ahead  chan struct{}
	gone   chan struct{} // closed when the process has ended
	why    error         // it did; read after gone

	mu      sync.Mutex
	fetches map[string]*fetch // by digest
	wanted  map[int]*want     // by ID
	last    int               // ID
}

// want is something that the process is to fetch.
type want struct {
	part *part
	done chan error
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
	desc  ocispec.Descriptor
	state atomic.Value
	done  chan struct{} // closed when err is set

	part atomic.Pointer[part]
	err  error
	uses int  // readers that will come or are there
	slot bool // it holds a place of ahead
}

// want has the process write something to p, and waits until it has.
func (s *Session) want(ctx context.Context, f imagework.Fetch, p *part) error {
	w := &want{part: p, done: make(chan error, 1)}
	s.mu.Lock()
	s.last++
	f.ID = s.last
	s.wanted[f.ID] = w
	s.mu.Unlock()
	if s.p.Send(imagework.MessageFetch, f) != nil {
		<-s.gone
		return s.why
	}
	select {
	case err := <-w.done:
		return err
	case <-s.gone:
		return s.why
	case <-ctx.Done():
		return s.explain(ctx, ctx.Err())
	}
}

// receive reads what the process says until its end.
func (s *Session) receive() {
	defer close(s.gone)
	for {
		var f imagework.Fetched
		if s.why = s.p.Expect(imagework.MessageFetched, maxFetched, &f); s.why != nil {
			return
		}
		var err error
		if f.Failure != nil {
			err = f.Failure.Err()
		}
		s.mu.Lock()
		w := s.wanted[f.ID]
		delete(s.wanted, f.ID)
		s.mu.Unlock()
		if w != nil {
			w.done <- err
		}
	}
}

// maxFetched bounds the message that something was fetched, or why not, in bytes.
const maxFetched = 256 << 10

// give gives the process what it asks for.
func (s *Session) give(ctx context.Context, request json.RawMessage) (*os.File, error) {
	var a imagework.Ask
	if err := json.Unmarshal(request, &a); err != nil {
		return nil, err
	}
	switch {
	case a.Server != "":
		return s.dial(ctx, a.Server)
	case a.Authorities:
		return authorityFile()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.wanted[a.File]; w != nil {
		return w.part.again()
	}
	return nil, fmt.Errorf("nothing is to be fetched to the file %d", a.File)
}

// Document implements imagework.Repository.
func (s *Session) Document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	p, err := s.fetched(ctx, imagework.Fetch{Document: d}, d.Size)
	if err != nil {
		return nil, err
	}
	defer p.file.Close() // it has no name
	data, err := io.ReadAll(io.NewSectionReader(p.file, 0, d.Size+1))
	if err == nil && int64(len(data)) != d.Size {
		err = sbxerr.New(sbxerr.ImageFormat, "registry.document", "%s has %d bytes, stated are %d", d.Digest, len(data), d.Size)
	}
	return data, err
}

// Signatures implements imagework.Repository.
func (s *Session) Signatures(ctx context.Context, of []digest.Digest) (io.ReadCloser, error) {
	p, err := s.fetched(ctx, imagework.Fetch{Signatures: of}, 2*imagework.MaxSignatures*imagework.MaxSigned) // as JSON
	if err != nil {
		return nil, err
	}
	_, err = p.file.Seek(0, io.SeekStart)
	return p.file, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
}

// fetched fetches to a file without a name.
func (s *Session) fetched(ctx context.Context, f imagework.Fetch, most int64) (*part, error) {
	file, err := image.Spool(s.spool.dir)
	if err != nil {
		return nil, err
	}
	p := &part{file: file, size: most}
	if err = s.want(ctx, f, p); err == nil {
		err = p.check()
	}
	if err != nil {
		file.Close() // the first error says it
		return nil, err
	}
	return p, nil
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
				f.finish(kept)
				continue
			}
			select {
			case s.ahead <- struct{}{}:
				f.slot = true
				s.wg.Go(func() { s.run(f) })
			case <-s.ctx.Done():
				f.finish(s.explain(s.ctx, s.ctx.Err()))
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
	p, err := s.spool.open(f.desc)
	if err == nil {
		f.part.Store(p)
		err = s.want(s.ctx, imagework.Fetch{Layer: f.desc}, p)
	}
	if err == nil {
		err = p.check()
	}
	if err == nil {
		f.state.Store(Fetched)
	}
	f.finish(err)
}

func (f *fetch) finish(err error) {
	f.err = err
	close(f.done)
}

// Layer implements imagework.Repository. A layer that was read and is needed again is
// fetched again.
func (s *Session) Layer(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	s.mu.Lock()
	f := s.fetches[d.Digest.String()]
	if f == nil || f.uses == 0 {
		if f != nil {
			f.part.Load().file.Close() // it was removed
		}
		f = s.add(d)
		s.wg.Go(func() { s.run(f) })
	}
	s.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, s.explain(ctx, ctx.Err())
	}
	if f.err != nil {
		return nil, f.err
	}
	return &layerReader{Reader: io.NewSectionReader(f.part.Load().file, 0, f.desc.Size), session: s, fetch: f}, nil
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
	defer l.session.mu.Unlock()
	l.fetch.uses--
	if l.fetch.slot { // also of a layer that is read again later, or its place could hold up all others
		l.fetch.slot = false
		<-l.session.ahead
	}
	if l.fetch.uses > 0 {
		return nil
	}
	l.fetch.state.Store(Stored)
	return l.fetch.part.Load().drop()
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
	at := Progress{Size: f.desc.Size}
	at.State, _ = f.state.Load().(string)
	if p := f.part.Load(); at.State == Stored {
		at.Received = at.Size
	} else if p != nil {
		at.Received = min(p.length(), at.Size)
	}
	return at, true
}

// Check fails where a file is longer than what it is for, or than nothing once that is stored: the
// process that has it is not what it was.
func (s *Session) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.fetches {
		if p := f.part.Load(); p != nil {
			if err := p.check(); err != nil {
				return err
			}
		}
	}
	for _, w := range s.wanted {
		if err := w.part.check(); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the process and the fetches with err, the outcome of the whole, and returns what that
// is to the caller. What was fetched stays in the spool where the same pull may succeed later.
func (s *Session) Close(err error) error {
	err = s.explain(s.ctx, err)
	s.cancel(nil)
	s.p.Close()
	s.wg.Wait()
	keep := errors.Is(err, sbxerr.Registry) || errors.Is(err, sbxerr.Deadline) || errors.Is(err, sbxerr.Canceled) || errors.Is(err, sbxerr.Busy)
	errs := []error{err}
	for _, f := range s.fetches {
		p := f.part.Load()
		if p == nil {
			continue
		}
		if f.uses > 0 && !keep {
			errs = append(errs, p.drop())
		}
		errs = append(errs, p.file.Close())
	}
	return errors.Join(errs...)
}

// explain says why a pull was ended.
func (s *Session) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return sbxerr.WithRemedy(sbxerr.Deadline, opPull, fmt.Errorf("pull %s: it takes longer than registries.timeout", s.ref.full),
			"pull again: it goes on where it was; or raise registries.timeout in the daemon's configuration")
	}
	return sbxerr.New(sbxerr.Canceled, opPull, "pull %s: %w", s.ref.full, context.Cause(ctx))
}
