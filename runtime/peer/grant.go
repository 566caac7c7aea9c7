package peer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// rank is what kind of caller a Grant is for.
type rank uint8

const (
	nobody rank = iota
	nested      // a command inside of a sandbox
	listed      // a user of the host that a rule names
	root
	system
)

// Grant is what one caller may do. The zero Grant is nothing. It is a value of
// one call: ask the Policy again for the next.
type Grant struct {
	rank   rank
	caller Caller
	rule   Rule
	life   time.Duration // of a sandbox from its creation on; rule.TTL is less where a parent ends before
	free   bool          // every profile
	parent Parent
	above  []Parent // parent and its ancestors, the nearest first
	gates  *gates
}

// Caller returns whose Grant it is.
func (g Grant) Caller() Caller { return g.caller }

// Owner returns the user to whom belongs what is made under the Grant, and
// against whose quota it counts: the caller itself, or for a nested one the
// owner of its sandbox.
func (g Grant) Owner() Caller {
	if g.rank == nested {
		return g.parent.Owner
	}
	return g.caller
}

// Parent returns the ID of the sandbox of which a sandbox that is made under
// the Grant is a child; empty for a caller that is in none.
func (g Grant) Parent() string { return g.parent.ID }

// Above returns the IDs of the sandboxes that end such a sandbox by their own end: Parent
// and its ancestors, the nearest first.
func (g Grant) Above() (ids []string) {
	for _, p := range g.above {
		ids = append(ids, p.ID)
	}
	return ids
}

// Sees reports whether the caller may know of a sandbox of the user owner, made
// from inside of the sandbox parent (empty: from none). What it does not see is
// to it as if it were not there: the same code, the same message.
func (g Grant) Sees(owner uint32, parent string) bool {
	switch g.rank {
	case system, root:
		return true
	case listed:
		return owner == g.caller.UID
	case nested:
		return parent != "" && parent == g.parent.ID
	case nobody:
	}
	return false
}

// CheckProfile refuses a profile that the caller may not use. Empty is strict.
func (g Grant) CheckProfile(name string) error {
	if g.free {
		return nil
	}
	allowed := g.rule.Profiles
	if !slices.Contains(allowed, strict) {
		allowed = slices.Concat([]string{strict}, allowed)
	}
	if name == "" || slices.Contains(allowed, name) {
		return g.refusal()
	}
	return g.refusal(fmt.Errorf("profile %q is none of %s", sbxerr.Clip(name), strings.Join(allowed, ", ")))
}

// Network is the network mode of a sandbox whose request names none: empty, which is the
// profile's. Of a child it is allow where the request names destinations, else none.
func (g Grant) Network(asked string, destinations bool) string {
	switch {
	case asked != "" || g.rank != nested:
		return asked
	case destinations:
		return allowNetwork
	}
	return noNetwork
}

// The network modes of a child: nothing is reached, or a part of what its parent reaches.
const (
	noNetwork    = "none"
	allowNetwork = "allow"
)

// CheckNetwork refuses a network mode that is not granted. own says that the request names
// the mode or destinations; otherwise they come from the profile. The destinations of a child
// are bounded by the policy of its parent.
func (g Grant) CheckNetwork(mode string, own bool) error {
	switch {
	case mode == noNetwork || g.rank == root || g.rank == system:
		return g.refusal()
	case g.rank == nested && mode == allowNetwork:
		return g.refusal()
	case g.rank == nested:
		return g.refusal(fmt.Errorf("a child gets no network mode %q: it would be another way out than its parent's", sbxerr.Clip(mode)))
	case own && !g.rule.Network:
		return g.refusal(errors.New("naming a network mode or destinations is not granted; a profile that has them can be"))
	}
	return g.refusal()
}

// Ways are settings of a network by which a caller would get around what bounds it: a child
// around its parent's policy, and all but root around what the operator's secrets are for.
type Ways struct{ Links, Resolvers, ECH, Routes bool }

// CheckWays refuses them.
func (g Grant) CheckWays(w Ways) error {
	if w.Routes && g.rank != root && g.rank != system {
		return g.refusal(errors.New("only root gives a route whole: it takes a secret wherever it says"))
	}
	if g.rank != nested {
		return g.refusal()
	}
	var reasons []error
	if w.Links {
		reasons = append(reasons, errors.New("a child gets no links: they lead where its parent's policy does not"))
	}
	if w.Resolvers {
		reasons = append(reasons, errors.New("a child asks the resolvers of its parent"))
	}
	if w.ECH {
		reasons = append(reasons, errors.New("a child may hide names in TLS hellos (--allow-ech) if its parent may, without asking"))
	}
	return g.refusal(reasons...)
}

// CheckPublish refuses host ports that are not granted. wide says that other hosts can
// connect to one, low that one is below 1024.
func (g Grant) CheckPublish(wide, low bool) error {
	switch {
	case g.rank == root || g.rank == system:
		return g.refusal()
	case g.rank == nested:
		return g.refusal(errors.New("a child publishes no port: it would be a way out of its parent's sandbox"))
	}
	var reasons []error
	remedy := ""
	if low {
		reasons = append(reasons, errors.New("a port below 1024 is for root alone to publish"))
		remedy = "publish a port of the host from 1024 on, or have root publish this one: no entry of peers: can grant it"
	}
	if wide && !g.rule.Network {
		reasons = append(reasons, errors.New("publishing on an address that is not loopback is not granted"))
	}
	return g.refusalWith(remedy, reasons...)
}

// CheckImages refuses callers that may not import and remove images. The caller sends the
// bytes of an import; the daemon never opens a path for it.
func (g Grant) CheckImages() error {
	if g.rank == nested {
		return g.refusal(errors.New("images cannot be changed from inside of a sandbox"))
	}
	if !g.rule.Images {
		return g.refusal(errors.New("importing and removing images is not granted"))
	}
	return g.refusal()
}

// MaxSnapshots is how many snapshots a user may have whom an entry of peers bounds.
const MaxSnapshots = 64

// CheckSnapshots refuses callers that may not keep snapshots. Who may have volumes may.
func (g Grant) CheckSnapshots() error {
	if g.rank == nested {
		return g.refusal(errors.New("there are no snapshots inside of a sandbox"))
	}
	if !g.rule.Volumes {
		return g.refusal(errors.New("snapshots are not granted: volumes would grant them"))
	}
	return g.refusal()
}

// Snapshots returns how many snapshots the caller may have; 0 is any number.
func (g Grant) Snapshots() int {
	if g.Unbounded() {
		return 0
	}
	return MaxSnapshots
}

// MaxVolumes is how many volumes a user may have whom an entry of peers bounds.
const MaxVolumes = 256

// CheckVolumes refuses callers that may not use volumes.
func (g Grant) CheckVolumes() error {
	if g.rank == nested {
		return g.refusal(errors.New("there are no volumes inside of a sandbox"))
	}
	if !g.rule.Volumes {
		return g.refusal(errors.New("volumes are not granted"))
	}
	return g.refusal()
}

// Volumes returns how many volumes the caller may have; 0 is any number.
func (g Grant) Volumes() int {
	if g.Unbounded() {
		return 0
	}
	return MaxVolumes
}

// SeesImages reports whether the caller may know of the images of the user owner:
// its own and root's, and root of all. A nested caller has those of its owner.
func (g Grant) SeesImages(owner uint32) bool {
	switch g.rank {
	case system, root:
		return true
	case listed, nested:
		return owner == 0 || owner == g.Owner().UID
	case nobody:
	}
	return false
}

// CheckOwnImage refuses to change an image of another user. Root may.
func (g Grant) CheckOwnImage(owner uint32, name string) error {
	if g.rank == root || g.rank == system || g.rank == listed && owner == g.caller.UID {
		return g.refusal()
	}
	whose := "root"
	if owner != 0 {
		whose = fmt.Sprintf("uid %d", owner)
	}
	return g.refusalWith("have its owner or root do it: no entry of peers: can grant this",
		fmt.Errorf("image %q belongs to %s", sbxerr.Clip(name), whose))
}

// ImageBytes returns how many bytes the images of the caller may have together.
func (g Grant) ImageBytes() int64 { return g.rule.Quota.ImageBytes }

// CheckAdmin refuses operations of root to other callers: cleanup, doctor and images from
// the host. They change the host as root, or read files that only root can.
func (g Grant) CheckAdmin() error {
	if g.rank == root || g.rank == system {
		return nil
	}
	return g.refusalWith("have root do it: no entry of peers: can grant this", errors.New("this is for root alone"))
}

// CheckHost refuses facts about the host to callers inside a sandbox: the lists of images,
// versions and capabilities.
func (g Grant) CheckHost() error {
	if g.rank == nested {
		return g.refusal(errors.New("this is not shown inside of a sandbox"))
	}
	return g.refusal()
}

// CheckEnter refuses commands and files in a running sandbox to a caller that may only know
// its state, result and output: the parent of a child, unless the profile lets it in.
func (g Grant) CheckEnter() error {
	if g.rank == nested && !g.parent.Enter {
		return sbxerr.WithRemedy(sbxerr.Peer, "peer.check", fmt.Errorf("%s: a sandbox does not enter its children: it gets their state, result and output", g.caller),
			"run the command as the child's own (caisson run), or have the operator set nested.enter in the profile of the outer sandbox")
	}
	return g.refusal()
}

// CheckNested refuses a sandbox with a socket of its own where no generation may follow.
func (g Grant) CheckNested() error {
	if g.rank == nested && g.parent.Depth <= 1 {
		return sbxerr.WithRemedy(sbxerr.Peer, "peer.check", fmt.Errorf("%s: a child gets no socket for children of its own at this depth", g.caller),
			"have the operator raise nested.depth in the profile of the outer sandbox, and make it and each child with that profile")
	}
	return g.refusal()
}

// Depth returns how many generations a sandbox of a profile that allows depth may have
// below it.
func (g Grant) Depth(depth int) int {
	if g.rank == nested {
		return min(depth, g.parent.Depth-1)
	}
	return depth
}

// refusal joins the reasons under the code Peer. Without a reason only the zero
// Grant is refused.
func (g Grant) refusal(reasons ...error) error { return g.refusalWith("", reasons...) }

// refusalWith is refusal with a remedy other than the code's, which is to ask for
// an entry of peers; empty is that. To a nested caller no entry gives anything.
func (g Grant) refusalWith(remedy string, reasons ...error) error {
	if g.rank == nobody {
		reasons = append(reasons, errors.New("nothing is granted"))
	}
	err := errors.Join(reasons...)
	if err == nil {
		return nil
	}
	if g.rank == nested {
		remedy = "do it from outside of the sandbox: inside of one, a child can be given no more than its parent has, and no other way to the network or the host"
	}
	return sbxerr.WithRemedy(sbxerr.Peer, "peer.check", fmt.Errorf("%s: %w", g.caller, err), remedy)
}
