package runtime

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

// obtain returns a sandbox for p, live unless the command is to come that it is for: a
// ready one where there is one of its kind, else a new one. prepare sets what its record
// holds beyond the plan. turn is its place among the sandboxes that run; nil waits for one.
func (m *Manager) obtain(ctx context.Context, p *plan.Sandbox, turn *place, prepare func(*record)) (_ *sandbox, err error) {
	if turn == nil {
		if turn, err = m.awaitTurn(ctx, p); err != nil {
			return nil, err
		}
	}
	s, err := m.take(ctx, p, prepare)
	if err != nil {
		turn.leave()
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
	for _, pool := range m.poolsFor(p) {
		s, was, err := m.claim(pool, p)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		err = m.assign(ctx, s, was, p, prepare)
		pool.used(err == nil)
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
	if sbxerr.Of(err) == sbxerr.Busy && m.giveBack(ctx) { // what nobody asked for is not to be in the way
		p.Become(newID())
		return m.make(ctx, p, prepare)
	}
	return s, err
}

// claim makes a ready sandbox of pool known under the names of p, and returns what
// its record was. It takes none where a name is taken or a quota is used up. Until
// assign returns s.changing is held: who looks at it sees all of the change, or
// nothing.
func (m *Manager) claim(pool *pool, p *plan.Sandbox) (s *sandbox, was record, err error) {
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
	if s = pool.take(kindOf(p)); s == nil {
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
	s.end(errSpoiled)
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
	if err := failpoint("assign/renamed"); err != nil {
		return err
	}
	if err := errors.Join(m.attachMounts(ctx, s, p), failpoint("assign/mounts")); err != nil {
		return err
	}
	disks, err := m.disksOf(r)
	if err != nil {
		return err
	}
	p.Limits.Disks, r.Limits.Disks = disks, disks
	if err := errors.Join(m.setLimits(s, have.Limits, p.Limits), failpoint("assign/limits")); err != nil {
		return err
	}
	sizes := plan.TmpfsSizes(s.spec)
	if err := m.declare(s, p, have); err != nil {
		return err
	}
	if err := errors.Join(resizeTmpfs(s, sizes), failpoint("assign/tmpfs")); err != nil {
		return err
	}
	if err := m.openPorts(s, p); err != nil {
		return err
	}
	made := s.kept()
	r.Ports, r.Held = made.Ports, made.Held
	if r.follows() { // its parent's may be another since it was planned
		if r.Policy, _, err = m.narrowed(r); err != nil {
			return err
		}
	}
	if err := errors.Join(m.setPolicy(ctx, s, have.Policy, r.Policy), failpoint("assign/policy")); err != nil {
		return err
	}
	r.Stages = []Stage{{Name: "pool", Duration: time.Since(begin)}}
	r.Expires = in(p.Request.TTL)
	s.update(func() { s.record = r })
	if err := errors.Join(m.createNested(ctx, s), m.servePorts(ctx, s)); err != nil {
		return err
	}
	if err := errors.Join(m.complete(s), failpoint("assign/record")); err != nil {
		return err
	}
	s.rearm()
	return nil
}

// attachMounts gives a live sandbox the mounts of p.
func (h *host) attachMounts(ctx context.Context, s *sandbox, p *plan.Sandbox) error {
	attach := h.attachPoint(s)
	err := h.eachBind(ctx, s, p, func(b plan.Mount, ws *mount.Workspace, ids *mount.UserNS) error {
		if err := attach(b, ws, ids); err != nil || b.Nested {
			return err
		}
		return ws.AttachInto(s.process.file, b.Target, b.ReadOnly, ids)
	})
	if err != nil {
		return err
	}
	return h.attachLate(ctx, s, p, func(b plan.Mount) bool { return b.Nested || b.Source == "" })
}

// declare makes the spec of s that of p, against which another daemon checks it,
// where it is another than it was made with.
func (h *host) declare(s *sandbox, p *plan.Sandbox, have record) error {
	if len(p.Mounts) == 0 && p.Limits == have.Limits {
		return nil
	}
	spec, _, err := h.buildSpec(p, s.block) // what it warns of was said when s was made
	if err != nil {
		return err
	}
	s.update(func() { s.spec, s.stale = spec, true })
	return writeRecord(h.paths.spec(s.id), spec)
}

// resizeTmpfs gives every tmpfs of s the size that its spec declares, where the spec had
// another. No command has run there, so there is room for what they hold.
func resizeTmpfs(s *sandbox, had map[string]int64) error {
	sizes := plan.TmpfsSizes(s.spec)
	maps.DeleteFunc(sizes, func(point string, size int64) bool {
		old, there := had[point]
		return !there || old == size // those of the request are not there yet
	})
	if len(sizes) == 0 {
		return nil
	}
	return mount.ResizeTmpfs(s.process.file, sizes)
}
