package peer

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
)

// strict is the profile that every peer may use.
const strict = "strict"

// noID is the kernel's id for users and groups without an id here (user_namespaces(7),
// overflowuid). It may stand for anybody.
const noID = 65534

func noOne(id uint32) bool { return id == noID || id == math.MaxUint32 }

// Rule grants rights to some peers. Every bound is required: zero is an error.
type Rule struct {
	// UIDs and GIDs are the users and groups that the rule is for: a caller that
	// is one of the users or has one of the groups. At least one of both.
	UIDs, GIDs []uint32
	// Profiles are those that may be used beside strict.
	Profiles []string
	// Network allows requests to name network modes and destinations. Without it a sandbox
	// has the network of its profile, or less.
	Network bool
	// Workspaces restrict workspaces to these directories. The user's own rights on the
	// host apply too. Empty adds no restriction.
	Workspaces []string
	Limits     Limits        // ceilings of one sandbox
	TTL        time.Duration // the longest life of one sandbox
	Quota      Usage         // of all sandboxes of one uid
	Images     bool          // whether images may be imported and removed
	Volumes    bool          // whether volumes may be used
}

// Policy holds the rules for all callers. The zero Policy admits only root.
type Policy struct {
	rules []Rule
	gates *gates
}

// NewPolicy returns the Policy of these rules, of which the first that is for a
// caller counts.
func NewPolicy(rules []Rule) (Policy, error) {
	var errs []error
	for i, r := range rules {
		if err := r.validate(); err != nil {
			errs = append(errs, fmt.Errorf("peers[%d]: %w", i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Policy{}, sbxerr.Wrap(sbxerr.DaemonConf, "peer.policy", err)
	}
	return Policy{rules: slices.Clone(rules), gates: newGates()}, nil
}

func (r Rule) validate() error {
	var errs []error
	if len(r.UIDs)+len(r.GIDs) == 0 {
		errs = append(errs, errors.New("it is for nobody: name uids or groups"))
	}
	for _, id := range slices.Concat(r.UIDs, r.GIDs) {
		if noOne(id) {
			errs = append(errs, fmt.Errorf("id %d is what the kernel shows for whoever has none", id))
		}
	}
	for _, dir := range r.Workspaces {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			errs = append(errs, fmt.Errorf("workspaces: %q is not a clean absolute path", dir))
		}
	}
	required := []int64{int64(r.TTL), r.Quota.Sandboxes, r.Quota.MemoryBytes, r.Quota.MilliCPU, r.Quota.Execs, r.Quota.ImageBytes, r.Quota.PIDs, r.Quota.DiskBytes}
	for i := range settings.Table {
		if row := &settings.Table[i]; row.Ceiling != 0 {
			required = append(required, *row.Of((*settings.Limits)(&r.Limits)))
		}
	}
	for _, n := range required {
		if n <= 0 {
			errs = append(errs, fmt.Errorf("a limit or quota is %d: zero never means unlimited", n))
		}
	}
	return errors.Join(errs...)
}

// is reports whether the rule is for c. Root is only bound by a rule that names
// its uid: a group is no reason to bind it. A caller from the network has no groups.
func (r Rule) is(c Caller) bool {
	if slices.Contains(r.UIDs, c.UID) {
		return true
	}
	return c.UID != 0 && !c.IsRemote() && slices.ContainsFunc(r.GIDs, func(id uint32) bool { return id == c.GID || slices.Contains(c.Groups, id) })
}

// rootRule is that of root where none is written: everything.
func rootRule() Rule {
	return Rule{
		Limits: Limits(settings.Endless()),
		TTL:    endless,
		Quota:  Usage{endless, endless, endless, endless, endless, endless, endless},
		Images: true, Volumes: true,
	}
}

// Grant returns the rights of c, or refuses it with the code Peer. A caller inside a
// sandbox needs GrantNested, because its rights depend on that sandbox.
func (p Policy) Grant(c Caller) (Grant, error) {
	const op = "peer.grant"
	switch {
	case c.origin == unknown:
		return Grant{}, sbxerr.New(sbxerr.Peer, op, "the caller is known to nobody")
	case c.Sandbox != "":
		return Grant{}, sbxerr.New(sbxerr.Peer, op, "%s may only manage its own children", c)
	case c.IsSystem():
		return Grant{rank: system, caller: c, rule: rootRule(), life: endless, free: true}, nil
	}
	i := slices.IndexFunc(p.rules, func(r Rule) bool { return r.is(c) })
	switch {
	case i < 0 && c.UID == 0:
		return Grant{rank: root, caller: c, rule: rootRule(), life: endless, free: true}, nil
	case i < 0 && !noOne(c.UID):
		return Grant{}, sbxerr.WithRemedy(sbxerr.Peer, op, fmt.Errorf("%s may not use this daemon", c),
			fmt.Sprintf("ask the operator to list this user in the daemon's configuration, peers: [{uids: [%d]}], and to reload it", c.UID))
	case i < 0 || noOne(c.UID):
		return Grant{}, sbxerr.New(sbxerr.Peer, op, "%s may not use this daemon", c)
	case c.UID == 0:
		return Grant{rank: root, caller: c, rule: p.rules[i], life: p.rules[i].TTL}, nil
	}
	return Grant{rank: listed, caller: c, rule: p.rules[i], life: p.rules[i].TTL, gates: p.gates}, nil
}

// Admit refuses callers without any right when they connect. It admits callers inside a
// sandbox: their Grant decides.
func (p Policy) Admit(c Caller) error {
	if c.origin == kernel && c.Sandbox != "" {
		return nil
	}
	_, err := p.Grant(c)
	return err
}

// Open reports whether anybody but root may call.
func (p Policy) Open() bool { return len(p.rules) > 0 }
