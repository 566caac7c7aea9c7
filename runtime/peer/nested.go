package peer

import (
	"cmp"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
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
	Budget    Usage      // of all its descendants together; see DefaultBudget
	Enter     bool       // its commands may enter its children: run commands there, and use their files
	Depth     int        // generations that it may have below it; 1 is children without children
	Workspace *Workspace // nil gives its children none
}

// GrantNested returns the grant of a caller inside parent. The ancestors of parent follow,
// the nearest first. The caller may create, use and remove children. Each child has at most
// the limits of parent and of every ancestor, and does not outlive one of them. What it has
// counts against the budgets of all of them. Children have parent's profile or strict, and no
// directory of the host but those of parent's workspace. The grant never exceeds the current one of parent's owner.
func (p Policy) GrantNested(c Caller, parent Parent, ancestors ...Parent) (Grant, error) {
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
	above := append([]Parent{parent}, ancestors...)
	for i := range above {
		above[i].Budget.PIDs = endless      // see DefaultBudget
		above[i].Budget.DiskBytes = endless // the quota of its owner bounds them
		r.Limits = Limits(settings.Limits(r.Limits).AtMost(settings.Limits(above[i].Limits)))
		if left := above[i].Remaining; left != nil {
			r.TTL = min(r.TTL, *left)
		}
	}
	if r.TTL <= 0 {
		return Grant{}, sbxerr.New(sbxerr.Peer, op, "%s is at its end", c)
	}
	r.Images = false
	return Grant{rank: nested, caller: c, rule: r, life: g.life, parent: parent, above: above, gates: cmp.Or(p.gates, newGates())}, nil
}
