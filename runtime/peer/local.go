package peer

import (
	"context"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// CheckLocal refuses to callers from the network, root's too, what acts on the host with a user's
// own rights: a key stands for a user in this daemon, and for no process of that user.
func (g Grant) CheckLocal(what string) error {
	if err := g.caller.local(what); err != nil {
		return err
	}
	return g.refusal()
}

// RequireLocal is CheckLocal for the caller in ctx.
func RequireLocal(ctx context.Context, what string) error {
	c, err := Require(ctx)
	if err != nil {
		return err
	}
	return c.local(what)
}

func (c Caller) local(what string) error {
	if c.IsRemote() {
		return sbxerr.New(sbxerr.NotRemote, "peer.local", "%s: %s is not for callers from the network", c, what)
	}
	return nil
}

// IsRemote reports whether the caller is not a process of this host.
func (g Grant) IsRemote() bool { return g.caller.IsRemote() }
