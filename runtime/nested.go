package runtime

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// createNested gives the sandbox a socket of its own, where it may have one. Who
// comes by it is this sandbox, whatever its ids are. One that an earlier daemon
// left is replaced.
func (h *host) createNested(_ context.Context, s *sandbox) error { return h.listenNested(s, s.kept()) }

// updateNested is createNested for a sandbox of the pool.
func (h *host) updateNested(_ context.Context, s *sandbox, c *change) (undo func() error, err error) {
	if c.plan == nil {
		return nil, nil
	}
	return nil, h.listenNested(s, c.to)
}

func (h *host) listenNested(s *sandbox, r record) error {
	if r.Nested == nil {
		return nil
	}
	path := filepath.Join(h.paths.init(s.id), plan.NestedName)
	if err := removeFiles(path); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.nested", err)
	}
	l.SetUnlinkOnClose(false) // the stage's removal does it, also after a crash
	s.nested = l
	uid, gid := int(r.HostIDBase+r.User.UID), int(r.HostIDBase+r.User.GID)
	if err := owndir.Give(path, 0o600, uid, gid); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.nested", fmt.Errorf("give socket %q to the sandbox: %w", path, err))
	}
	h.opts.ServeNested(s.id, l)
	return nil
}

func (h *host) removeNested(_ context.Context, id string) error {
	return removeFiles(filepath.Join(h.paths.init(id), plan.NestedName))
}

// usageOf bounds all descendants of a sandbox with limits l together.
func usageOf(n plan.NestedRequest, l plan.Limits) peer.Usage {
	b := peer.DefaultBudget(l.Peer())
	plan.Override(&b.Sandboxes, n.Sandboxes)
	plan.Override(&b.MemoryBytes, n.MemoryBytes)
	plan.Override(&b.MilliCPU, n.MilliCPU)
	return b
}
