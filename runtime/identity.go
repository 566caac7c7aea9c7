package runtime

import "github.com/caisson-run/caisson/runtime/peer"

func (s *sandbox) identity() identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return identity{name: s.record.Name, parent: s.record.Parent, owner: s.record.OwnerUID, pooled: s.record.Pooled, unisolated: s.record.unisolated()}
}

// seenBy hides what runs as a user of the host from callers of the network.
func (i identity) seenBy(g peer.Grant) bool {
	return !i.pooled && !(i.unisolated && g.IsRemote()) && g.Sees(i.owner, i.parent)
}

// of reports whether the sandbox is one that the caller itself made.
func (i identity) of(g peer.Grant) bool {
	return !i.pooled && i.owner == g.Owner().UID && i.parent == g.Parent()
}

// identity is what decides who sees a sandbox, and as what.
type identity struct {
	name, parent string
	owner        uint32
	pooled       bool
	unisolated   bool
}
