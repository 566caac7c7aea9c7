package runtime

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/pool"
	"github.com/caisson-run/caisson/runtime/queue"
)

// obtain returns a sandbox for p, live unless the command is to come that it is for: a
// ready one where there is one of its kind, else a new one. prepare sets what its record
// holds beyond the plan. turn is its place among the sandboxes that run; nil waits for one.
func (m *Manager) obtain(ctx context.Context, p *plan.Sandbox, turn *queue.Place, prepare func(*record)) (_ *sandbox, err error) {
	if turn == nil {
		if turn, err = m.awaitTurn(ctx, p); err != nil {
			return nil, err
		}
	}
	s, err := m.take(ctx, p, prepare)
	if err != nil {
		turn.Leave()
		return nil, err
	}
	s.keepTurn(turn)
	if err := m.announceSandbox(ctx, s); err != nil {
		s.end(errUnrecorded)
		return nil, errors.Join(err, m.vanish(ctx, s))
	}
	return s, nil
}

// take is obtain without a word of it.
func (m *Manager) take(ctx context.Context, p *plan.Sandbox, prepare func(*record)) (*sandbox, error) {
	for _, from := range m.pools.For(p) {
		s, was, err := m.claim(from, p)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		err = m.assign(ctx, s, was, p, prepare)
		from.Used(err == nil)
		if err == nil {
			return s, nil
		}
		if code := sbxerr.Of(err); code == sbxerr.Canceled || code == sbxerr.Workspace || code == sbxerr.Peer || code == sbxerr.Busy || code == sbxerr.PortTaken || code == sbxerr.Limits { // a new one would not help
			return nil, err
		}
		m.log.Warn("use ready sandbox", "sandbox", s.id, "err", err)
		p.Become(newID()) // that one is still being removed under its own
	}
	s, err := m.make(ctx, p, prepare)
	if sbxerr.Of(err) == sbxerr.Busy && m.pools.GiveBack(ctx) { // what nobody asked for is not to be in the way
		p.Become(newID())
		return m.make(ctx, p, prepare)
	}
	return s, err
}

// claim makes a ready sandbox of a pool known under the names of p, and returns what
// its record was. It takes none where a name is taken or a quota is used up. Until
// assign returns s.changing is held: who looks at it sees all of the change, or
// nothing.
func (m *Manager) claim(from *pool.Pool, p *plan.Sandbox) (s *sandbox, was record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.openLocked(); err != nil {
		return nil, record{}, err
	}
	r := newRecord(p, m.boot, time.Time{})
	if err := m.claimNameLocked(r); err != nil {
		return nil, record{}, err
	}
	if err := m.admitGrantedLocked(p.Grant, r); err != nil {
		return nil, record{}, err
	}
	taken, _ := from.Take(p).(ready)
	if s = taken.sandbox; s == nil {
		return nil, record{}, nil
	}
	s.changing.Lock() // nobody has it for long: what is in a pool is not seen
	was = s.kept()
	p.Become(s.id)
	s.update(func() {
		s.record.Name, s.record.Key, s.record.Limits, s.record.Pooled = p.Name, r.Key, r.Limits, false
		s.record.OwnerUID, s.record.OwnerSystem, s.record.Mounts = r.OwnerUID, r.OwnerSystem, r.Mounts
		s.record.Parent, s.record.Ancestors = r.Parent, r.Ancestors
	})
	return s, was, nil
}

// assign makes a claimed sandbox that of p, or ends it.
func (m *Manager) assign(ctx context.Context, s *sandbox, was record, p *plan.Sandbox, prepare func(*record)) error {
	defer s.changing.Unlock()
	err := m.outfit(ctx, s, was, p, prepare)
	if err == nil {
		return nil
	}
	if cause := s.endCause(); !errors.Is(cause, errInitLost) {
		err = interrupted(cause, err)
	}
	m.unpublish(ctx, s)                 // its ports are for the one that is made instead
	s.update(func() { s.record = was }) // so is its name
	m.keepRecord(s)
	s.end(pool.ErrSpoiled)
	return err
}

// outfit gives a claimed sandbox what p asks for: its limits, its workspace, its
// record. Its ID stays, and with it all that is named after it.
func (m *Manager) outfit(ctx context.Context, s *sandbox, have record, p *plan.Sandbox, prepare func(*record)) error {
	r := newRecord(p, m.boot, time.Now().Round(0))
	if prepare != nil {
		prepare(&r)
	}
	r.HostIDBase, r.Stages, r.Warnings = have.HostIDBase, nil, slices.Concat(p.Notes, have.Warnings)
	r.PID, r.PIDBegan, r.Layers, r.FilterDigest = have.PID, have.PIDBegan, have.Layers, have.FilterDigest
	begin := time.Now()
	if err := failpoint.At("assign/renamed"); err != nil {
		return err
	}
	c := change{plan: p, from: have, to: r}
	if err := m.updateStages(ctx, s, m.stages, &c); err != nil {
		return err
	}
	r = c.to
	r.Stages = []Stage{{Name: "pool", Duration: time.Since(begin)}}
	r.Born, r.Expires = now(), in(p.Request.TTL)
	s.update(func() { s.record = r })
	if err := errors.Join(m.complete(s), failpoint.At("assign/record")); err != nil {
		return err
	}
	s.rearm()
	return nil
}
