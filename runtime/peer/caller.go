package peer

import (
	"context"
	"fmt"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Caller is who makes a call. Only User, FromConn, In, Remote and System make one that
// is granted anything: the zero value, which would read as root, is nobody, and
// so is one that comes out of JSON.
type Caller struct {
	UID    uint32   `json:"uid"`    // effective, on the host
	GID    uint32   `json:"gid"`    // effective, on the host
	Groups []uint32 `json:"groups"` // supplementary, sorted, without GID
	PID    int32    `json:"pid"`    // for people; it may be another process by now
	// Sandbox is the ID of the sandbox whose nested socket was used; empty
	// otherwise. It then counts alone, whatever the ids are.
	Sandbox string `json:"sandbox,omitempty"`
	// Key is the name of the key or certificate by which a caller from the network acts for
	// the user; empty for a process of this host.
	Key string `json:"key,omitempty"`

	origin origin
}

// origin says who vouches for a Caller.
type origin uint8

const (
	unknown origin = iota
	kernel         // or a record of what the kernel said
	daemon
	network // a key says so
)

// System is the daemon itself: pools, timers, recovery. It may do everything
// and is no user, not even root.
var System = Caller{origin: daemon}

// User returns the Caller with these ids on the host. It is for what the kernel
// said of a process, now or when its sandbox was recorded; and for tests.
func User(uid, gid uint32, groups []uint32, pid int32) Caller {
	g := slices.Compact(slices.Sorted(slices.Values(groups)))
	g = slices.DeleteFunc(g, func(id uint32) bool { return id == gid })
	return Caller{UID: uid, GID: gid, Groups: g, PID: pid, origin: kernel}
}

// In returns c as the caller from inside of a sandbox, by its nested socket.
func (c Caller) In(sandbox string) Caller {
	c.Sandbox = sandbox
	return c
}

// Remote returns the Caller from the network that acts for a user by a key with this name.
func Remote(uid, gid uint32, key string) Caller {
	if key == "" {
		return Caller{}
	}
	return Caller{UID: uid, GID: gid, Key: key, origin: network}
}

// IsRemote reports whether c is not a process of this host.
func (c Caller) IsRemote() bool { return c.origin == network || c.Key != "" }

// IsHostRoot reports whether c is a process of root on this host, outside of sandboxes.
func (c Caller) IsHostRoot() bool {
	return c.origin == kernel && c.Sandbox == "" && c.UID == 0 && !c.IsRemote()
}

// IsSystem reports whether c is the daemon itself.
func (c Caller) IsSystem() bool { return c.origin == daemon }

// String names c for messages and logs.
func (c Caller) String() string {
	switch {
	case c.origin == unknown:
		return "an unknown caller"
	case c.IsSystem():
		return "the daemon"
	case c.Sandbox != "":
		return "sandbox " + c.Sandbox
	case c.IsRemote():
		return fmt.Sprintf("uid %d by key %s", c.UID, c.Key)
	}
	return fmt.Sprintf("uid %d", c.UID)
}

type contextKey struct{}

// NewContext returns ctx with c as the caller.
func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// FromContext returns the caller in ctx, if there is one. Without one nothing
// may be done.
func FromContext(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(contextKey{}).(Caller)
	return c, ok
}

// Require returns the caller in ctx, or the refusal of a call that has none.
func Require(ctx context.Context) (Caller, error) {
	c, ok := FromContext(ctx)
	if !ok {
		return Caller{}, sbxerr.New(sbxerr.Peer, "peer.require", "the call does not say who makes it")
	}
	return c, nil
}
