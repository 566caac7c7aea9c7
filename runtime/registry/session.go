package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// Session is one pull. It implements imagework.Repository.
type Session struct {
	*dialer

	ctx     context.Context //nolint:containedctx // of the pull, whose end it explains
	ref     Reference
	rule    rule
	request imagework.Registry
	spool   spool

	mu    sync.Mutex
	parts map[string]*part // of the layers that are fetched, by digest; nil: it was not begun
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

// Request implements imagework.Repository.
func (s *Session) Request() imagework.Registry { return s.request }

// Layers implements imagework.Repository. Parts of the user's other images are removed, so that
// pulls that never end do not fill the disk.
func (s *Session) Layers(layers []ocispec.Descriptor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range layers {
		if s.parts[d.Digest.String()] == nil {
			s.parts[d.Digest.String()] = nil
		}
	}
	return s.spool.keepOnly(layers)
}

// Open implements imagework.Repository.
func (s *Session) Open(d ocispec.Descriptor) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[d.Digest.String()]
	if p != nil && p.stored { // an earlier process had it
		p.file.Close() // it was removed
		p = nil
	}
	if p == nil {
		var err error
		if p, err = s.spool.open(d); err != nil {
			return nil, err
		}
		s.parts[d.Digest.String()] = p
	}
	return p.again()
}

// Drop implements imagework.Repository.
func (s *Session) Drop(d ocispec.Descriptor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parts[d.Digest.String()]; p != nil {
		p.stored, p.size = true, 0
		return p.drop()
	}
	return nil
}

// Progress returns how far the layer is, and false for one that is not fetched.
func (s *Session) Progress(d ocispec.Descriptor) (Progress, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.parts[d.Digest.String()]
	at := Progress{Size: d.Size, State: Waiting}
	switch {
	case p == nil:
	case p.stored:
		at.Received, at.State = d.Size, Stored
	default:
		at.Received, at.State = min(p.length(), d.Size), Fetching
		if at.Received == d.Size {
			at.State = Fetched
		}
	}
	return at, known
}

// Check fails where a file is longer than its layer, or than none once that is stored: the process
// that has it is not what it was.
func (s *Session) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p != nil && p.length() > p.size {
			return sbxerr.New(sbxerr.ImageProcess, opSpool, "a file for %d bytes of a layer has %d", p.size, p.length())
		}
	}
	return nil
}

// Close ends the pull, whose process has ended, with err, its outcome, and returns what that is to
// the caller. What was fetched stays in the spool where the same pull may succeed later.
func (s *Session) Close(err error) error {
	if err != nil {
		err = s.explain(err)
	}
	keep := errors.Is(err, sbxerr.Registry) || errors.Is(err, sbxerr.Deadline) || errors.Is(err, sbxerr.Canceled) || errors.Is(err, sbxerr.Busy)
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{err}
	for _, p := range s.parts {
		switch {
		case p == nil:
		case keep || p.stored:
			errs = append(errs, p.file.Close())
		default:
			errs = append(errs, p.drop(), p.file.Close())
		}
	}
	return errors.Join(errs...)
}

// explain says why a pull was ended.
func (s *Session) explain(err error) error {
	switch {
	case s.ctx.Err() == nil:
		return err
	case errors.Is(s.ctx.Err(), context.DeadlineExceeded):
		return sbxerr.WithRemedy(sbxerr.Deadline, opPull, fmt.Errorf("pull %s: it takes longer than registries.timeout", s.ref.full),
			"pull again: it goes on where it was; or raise registries.timeout in the daemon's configuration")
	}
	return sbxerr.New(sbxerr.Canceled, opPull, "pull %s: %w", s.ref.full, context.Cause(s.ctx))
}
