package runtime

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// grant returns what the caller of ctx may do. A call without one is refused.
func (m *Manager) grant(ctx context.Context) (peer.Grant, error) {
	c, err := peer.Require(ctx)
	if err != nil {
		return peer.Grant{}, err
	}
	if c.Sandbox == "" {
		return m.settings().Peers.Grant(c)
	}
	parent, ancestors, err := m.parents(c.Sandbox)
	if err != nil {
		return peer.Grant{}, err
	}
	return m.settings().Peers.GrantNested(c, parent, ancestors...)
}

// permit checks the caller of ctx by one of its grant's questions.
func (m *Manager) permit(ctx context.Context, check func(peer.Grant) error) error {
	g, err := m.grant(ctx)
	if err != nil {
		return err
	}
	return check(g)
}

// parents describes the sandbox from inside of which a call comes, and its ancestors, the
// nearest first.
func (m *Manager) parents(id string) (parent peer.Parent, ancestors []peer.Parent, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sandboxes[id]
	if s == nil || s.kept().Nested == nil {
		return peer.Parent{}, nil, sbxerr.New(sbxerr.Peer, "runtime.nested", "sandbox %q may not make others", id)
	}
	r := s.kept()
	for _, above := range r.above() {
		a := m.sandboxes[above]
		if a == nil || a.kept().Nested == nil { // it ended, and so does this one
			return peer.Parent{}, nil, sbxerr.New(sbxerr.Canceled, "runtime.nested", "%w", errParentEnded)
		}
		ancestors = append(ancestors, m.asParent(a.kept()))
	}
	return m.asParent(r), ancestors, nil
}

// asParent describes a sandbox that may make others.
func (h *host) asParent(r record) peer.Parent {
	p := peer.Parent{
		ID: r.ID, Owner: r.owner(), Profile: r.Profile, Limits: r.Limits.Peer(), Budget: *r.Nested, Enter: r.NestedEnter, Depth: r.NestedDepth,
		Remaining: r.Expires.Remaining(),
	}
	if held := r.Held; held != nil {
		p.Workspace = &peer.Workspace{
			Held: h.paths.held(r.ID), Path: r.Workspace.Point(), ReadOnly: r.Workspace.Mode == "ro", UID: held.UID, GID: held.GID, Groups: held.Groups,
		}
	}
	return p
}

// owner is the user to whom a sandbox belongs, as the kernel said when it was
// asked for.
func (r record) owner() peer.Caller {
	if r.OwnerSystem {
		return peer.System
	}
	return peer.User(r.OwnerUID, r.OwnerGID, r.OwnerGroups, 0)
}

// usage is what a sandbox adds to a quota: while its limits change, the higher ones.
func (r record) usage() peer.Usage {
	u := peer.Usage{Sandboxes: 1, MemoryBytes: r.Limits.MemoryBytes, MilliCPU: r.Limits.MilliCPU, PIDs: r.Limits.PIDs, DiskBytes: r.Limits.DiskBytes}
	if to := r.Changing; to != nil {
		u.MemoryBytes, u.MilliCPU, u.PIDs = max(u.MemoryBytes, to.MemoryBytes), max(u.MilliCPU, to.MilliCPU), max(u.PIDs, to.PIDs)
	}
	return u
}

// visible lists the sandboxes that the caller of ctx may see, oldest first.
func (m *Manager) visible(ctx context.Context) ([]*sandbox, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(m.all(), func(s *sandbox) bool { return !s.identity().seenBy(g) }), nil
}

// standingLocked sums up what there is, for g's quotas.
func (m *Manager) standingLocked(g peer.Grant) peer.Standing {
	owner, above := g.Owner(), g.Above()
	st := peer.Standing{Below: make([]peer.Descendants, len(above))}
	for _, s := range m.sandboxes {
		r := s.kept()
		u, ended := s.usage()
		st.All.Add(u)
		if r.OwnerUID == owner.UID && r.OwnerSystem == owner.IsSystem() {
			st.Owner.Add(u)
			st.OwnerEnded += ended
		}
		for i, id := range above {
			if slices.Contains(r.above(), id) {
				st.Below[i].Add(u)
				st.Below[i].Ended += ended
			}
		}
	}
	if !owner.IsSystem() {
		st.Owner.DiskBytes += m.volumes.Sized(owner.UID)
	}
	return st
}

// usage is what s adds to a quota, and how many of its sandboxes have ended, one or none.
func (s *sandbox) usage() (u peer.Usage, ended int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.record.Pooled || s.deliveredLocked():
		return peer.Usage{}, 0
	case s.isOver():
		return peer.Usage{}, 1
	}
	u = s.record.usage()
	u.Execs = int64(s.running)
	return u, 0
}

// deliveredLocked reports whether s was for a run that is over and that nobody reads: it goes by itself.
func (s *sandbox) deliveredLocked() bool {
	main := s.execs[s.record.Main]
	if main == nil || s.record.Detached || !main.isDone() {
		return false
	}
	for _, e := range s.execs {
		if e.isRead() {
			return false
		}
	}
	return true
}

// planFor plans r as far as the caller of ctx may have it.
func (m *Manager) planFor(ctx context.Context, r plan.CreateRequest) (*plan.Sandbox, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	asked := r
	from, err := m.snapshots.Origin(g, r.From)
	if err != nil {
		return nil, err
	}
	if from != nil {
		r = r.On(from.Request)
	}
	if err := m.snapshots.Admit(g, r.SnapshotOnEnd); err != nil {
		return nil, err
	}
	if err := checkDirs(g, r); err != nil {
		return nil, err
	}
	if err := g.CheckWays(peer.Ways{Links: len(r.Links) > 0, Resolvers: len(r.DNS) > 0, ECH: r.AllowECH, Routes: r.GivesRoutes()}); err != nil {
		return nil, err
	}
	r = r.Granted(g)
	links, linkErr := m.resolveLinks(ctx, g, r.Links)
	pl := m.planner(ctx)
	pl.Links, pl.MaxTmpfs, pl.From = links, g.MaxTmpfs(), from
	if pl.Parent, err = m.parentOf(g); err != nil {
		return nil, err
	}
	pl.Snapshot = func(name string) (*plan.Origin, error) { return m.snapshots.Tree(g, name) }
	pl.IOReadBPS, pl.IOWriteBPS = g.IORates()
	p, err := pl.Sandbox(r)
	if err := plan.JoinReasons(linkErr, err); err != nil {
		return nil, err
	}
	p.Grant, p.Settings = g, asked
	if parent := m.byID(g.Parent()); parent != nil {
		p.Bill = parent.kept().aboutSpending().Bill
	}
	if err := g.CheckProfile(r.Profile); err != nil {
		return nil, err
	}
	if err := checkDirs(g, plan.CreateRequest{Mounts: p.MountRequests}); err != nil { // those of the profile, too
		return nil, err
	}
	if slices.ContainsFunc(p.Mounts, func(b plan.Mount) bool { return b.Volume }) {
		if err := g.CheckVolumes(); err != nil {
			return nil, err
		}
	}
	limits := p.Limits.Peer()
	limits.TmpfsBytes = p.LargestTmpfs()
	if err := errors.Join(g.CheckLimits(limits, r.TTL), g.CheckNetwork(string(p.Network), r.Network != "" || len(r.Allow)+len(r.Links)+len(r.DNS) > 0 || r.AllowECH), checkPublish(g, p.Ports), m.groups.CheckIO(p.Limits.Cgroup())); err != nil {
		return nil, err
	}
	if r.Nested != nil {
		if err := g.CheckNested(); err != nil {
			return nil, err
		}
	}
	if p.Profile.Unisolated != nil {
		if err := g.CheckLocal("a sandbox without isolation"); err != nil {
			return nil, err
		}
		return p, m.checkHostUser(ctx, p)
	}
	return p, nil
}

// checkDirs refuses directories of r by their names.
func checkDirs(g peer.Grant, r plan.CreateRequest) error {
	if r.Workspace != nil {
		if err := g.NameWorkspace(r.Workspace.Dir); err != nil {
			return err
		}
	}
	for _, dir := range r.BindDirs() {
		if err := g.NameBind(dir); err != nil {
			return err
		}
	}
	return nil
}
