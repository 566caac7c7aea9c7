package peer

import (
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Parent is a sandbox with a nested socket, and its bounds for its children.
type Parent struct {
	ID      string
	Owner   Caller // its creator, as recorded
	Profile string
	Limits  Limits // its own: a child gets no more
	// Remaining is the time until it ends, in which its children must end too.
	// Nil is a sandbox without end.
	Remaining *time.Duration
	Budget    Usage // of all its children together; see DefaultBudget
	Enter     bool  // its commands may enter its children: run commands there, and use their files
}

// GrantNested returns the grant of a caller inside parent. It may create, use and remove
// children. Each child has at most the limits of parent, and all children stay within its
// budget. They have its profile or strict, and no directory of the host. The grant never
// exceeds the current one of parent's owner.
func (p Policy) GrantNested(c Caller, parent Parent) (Grant, error) {
	const op = "peer.nested"
	if c.origin != kernel || c.Sandbox == "" || c.Sandbox != parent.ID {
		return Grant{}, sbxerr.New(sbxerr.Peer, op, "%s does not call from inside of sandbox %q", c, parent.ID)
	}
	g, err := p.Grant(parent.Owner)
	if err != nil {
		return Grant{}, sbxerr.Wrap(sbxerr.Peer, op, err)
	}
	r := g.rule
	r.Profiles = nil
	if g.free || slices.Contains(g.rule.Profiles, parent.Profile) {
		r.Profiles = []string{parent.Profile}
	}
	r.Limits = Limits{
		MemoryBytes: min(r.Limits.MemoryBytes, parent.Limits.MemoryBytes),
		MilliCPU:    min(r.Limits.MilliCPU, parent.Limits.MilliCPU),
		PIDs:        min(r.Limits.PIDs, parent.Limits.PIDs),
		TmpfsBytes:  min(r.Limits.TmpfsBytes, parent.Limits.TmpfsBytes),
		OpenFiles:   min(r.Limits.OpenFiles, parent.Limits.OpenFiles),
		CPUShares:   min(r.Limits.CPUShares, parent.Limits.CPUShares),
		IOReadBPS:   parent.Limits.IOReadBPS, // no rule of a peer has a ceiling
		IOWriteBPS:  parent.Limits.IOWriteBPS,
	}
	parent.Budget.PIDs = endless // see DefaultBudget
	if parent.Remaining != nil {
		r.TTL = min(r.TTL, *parent.Remaining)
	}
	if r.TTL <= 0 {
		return Grant{}, sbxerr.New(sbxerr.Peer, op, "%s is at its end", c)
	}
	r.Images = false
	return Grant{rank: nested, caller: c, rule: r, parent: parent}, nil
}
