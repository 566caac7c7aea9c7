package pool

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/peer"
)

// The pace of the filler.
const (
	fillRetry   = 5 * time.Second // after a failure
	fillLook    = 5 * time.Second // at memory and images
	shortMemory = 10              // per cent of the host's memory that are to stay free
	// fillRest is how long it leaves the processors to who took the last sandbox:
	// to make one takes as much of them as a hundred commands.
	fillRest = 30 * time.Millisecond
)

// fill keeps p full: one sandbox at a time, and only while nobody waits for one
// and none was just taken.
func (s *Service) fill(ctx context.Context, p *Pool) {
	tick := time.NewTicker(fillLook)
	defer tick.Stop()
	for {
		s.inspect(ctx, p)
		if s.retire(p) {
			return
		}
		for p.wants(s.goal(p)) && ctx.Err() == nil {
			if rest := p.rest(time.Now()); rest > 0 || s.fleet.Waiting() {
				if !pauseFor(ctx, max(rest, 10*time.Millisecond)) {
					return
				}
				continue
			}
			if err := s.fillOne(ctx, p); err != nil && ctx.Err() == nil {
				if p.like == nil || sbxerr.Of(err) != sbxerr.ImageNotFound { // else the next look retires it
					s.complain(p, "fill pool", err)
				}
				if !pauseFor(ctx, fillRetry) {
					return
				}
			}
		}
		select {
		case <-p.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// inspect drops what is of no more use: sandboxes of an image or profile that was
// replaced, and all of them when the host is short of memory.
func (s *Service) inspect(ctx context.Context, p *Pool) {
	short := isShortOfMemory()
	plan, err := s.fleet.Plan(ctx, p.request())
	if err != nil {
		if p.like == nil {
			s.complain(p, "plan pool", err)
		}
		p.empty(ErrOutdated)
		return
	}
	k := kindOf(plan)
	switch {
	case short:
		p.empty(errShort)
	case p.differs(k):
		p.empty(ErrOutdated)
	}
	p.rested(k, short)
	if p.trim(s.goal(p)) {
		s.Look() // there may be room for others
	}
}

// isShortOfMemory reports whether ready sandboxes are a luxury on this host now.
func isShortOfMemory() bool {
	host, err := cgroups.Pressure()
	return err == nil && host.Available < host.Total/100*shortMemory
}

// complain logs why p is not filled, once until the cause is another, as far as
// its code tells, or p was filled meanwhile.
func (s *Service) complain(p *Pool, what string, err error) {
	if p.troubled(sbxerr.Of(err)) {
		s.log.Warn(what, "profile", p.cfg.Profile, "image", p.cfg.Image, "err", err)
		d := events.Data{Profile: p.cfg.Profile, Image: p.cfg.Image}
		d.Tell(err)
		s.events.Emit(peer.NewContext(context.Background(), peer.System), events.Event{Type: events.PoolFailed, Scope: events.Scope{Host: true}, Data: d})
	}
}

// fillOne makes one sandbox and puts it in.
func (s *Service) fillOne(ctx context.Context, p *Pool) error {
	p.begin()
	start := time.Now()
	b, err := s.make(ctx, p)
	p.filled(b, time.Since(start), err)
	return err
}

func (s *Service) make(ctx context.Context, p *Pool) (Sandbox, error) {
	plan, err := s.fleet.Plan(ctx, p.request())
	if err != nil {
		return nil, err
	}
	b, err := s.fleet.Make(ctx, plan)
	if err != nil {
		return nil, err
	}
	if err := failpoint.At("pool/filled"); err != nil {
		b.End(ErrSpoiled)
		return nil, err
	}
	return b, nil
}
