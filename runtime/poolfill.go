package runtime

import (
	"cmp"
	"context"
	"path"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/runtime/failpoint"
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
func (m *Manager) fill(ctx context.Context, p *pool) {
	tick := time.NewTicker(fillLook)
	defer tick.Stop()
	for {
		m.inspectPool(ctx, p)
		if m.adaptive.retire(p) {
			return
		}
		for p.wants(m.goal(p)) && ctx.Err() == nil {
			if rest := p.rest(time.Now()); rest > 0 || m.making.queued() > 0 {
				if !pauseFor(ctx, max(rest, 10*time.Millisecond)) {
					return
				}
				continue
			}
			if err := m.fillOne(ctx, p); err != nil && ctx.Err() == nil {
				if p.like == nil || sbxerr.Of(err) != sbxerr.ImageNotFound { // else the next look retires it
					m.complain(p, "fill pool", err)
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

// fillOne makes one sandbox, checked like any other, and puts it in.
func (m *Manager) fillOne(ctx context.Context, p *pool) error {
	p.mu.Lock()
	p.filling++
	p.mu.Unlock()
	start := time.Now()
	s, err := m.makePooled(ctx, p)
	if failed := failpoint.At("pool/filled"); failed != nil && err == nil {
		s.end(errSpoiled)
		err = failed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling--
	if err != nil {
		p.failures++
		return err
	}
	p.trouble = ""
	if k := kindOf(s.plan); k != p.kind { // it was replaced since the last look
		p.endReadyLocked(errOutdated)
		p.kind = k
	}
	p.ready = append(p.ready, s)
	p.demand = p.demand.ready(len(p.ready))
	p.refills = append(p.refills, time.Since(start))
	if len(p.refills) > maxRefills {
		p.refills = p.refills[1:]
	}
	return nil
}

func (m *Manager) makePooled(ctx context.Context, p *pool) (*sandbox, error) {
	plan, err := m.planFor(ctx, p.request())
	if err != nil {
		return nil, err
	}
	s, err := m.make(ctx, plan, func(r *record) { r.Pooled = true })
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(m.announceSandbox(ctx, s), m.warm(ctx, s)); err != nil {
		s.end(errSpoiled)
		return nil, err
	}
	return s, nil
}

// warm has PID 1 start a process once, our own, which does nothing: the first
// start in a sandbox takes twice as long as the next.
func (h *host) warm(ctx context.Context, s *sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Start)
	defer cancel()
	proc, err := s.init.Start(ctx, s.ownCommand([]string{path.Join(initproto.Dir, initproto.BinaryName), initproto.NothingMode}))
	if err != nil {
		return err
	}
	if _, err := proc.Wait(ctx); err != nil {
		return err
	}
	return proc.Release()
}
