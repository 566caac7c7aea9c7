package runtime

import (
	"context"

	"github.com/caisson-run/caisson/cgroups"
)

// createCgroup makes nothing: the OCI runtime makes the group as the spec says. The
// sockets of the group are seen from the first one on.
func (m *Manager) createCgroup(ctx context.Context, _ *sandbox) error { return m.memory.Await(ctx) }

func (h *host) removeCgroup(ctx context.Context, id string) error {
	group, err := h.group(id)
	if err != nil {
		return err
	}
	if err := group.KillStray(ctx, h.opts.IDs.Holds); err != nil {
		return err
	}
	return group.Remove(ctx)
}

func (h *host) group(id string) (*cgroups.Group, error) {
	return cgroups.Open(h.groups, h.cgroupPath(id))
}

func (h *host) cgroupPath(id string) string { return "/" + h.opts.CgroupParent + "/" + id }

// tighten sets the limits that the OCI runtime does not set. PID 1 has not run anything yet.
func (h *host) tighten(ctx context.Context, s *sandbox) error {
	if err := h.tightenGroup(ctx, s); err != nil {
		return err
	}
	return s.ids.AsOwner(func() error { return setRlimits(s.process.pid, s.spec.Process.Rlimits) })
}

// tightenGroup makes the group that the OCI runtime made ready for groups of single commands.
func (h *host) tightenGroup(_ context.Context, s *sandbox) error {
	group, err := h.group(s.id)
	if err != nil {
		return err
	}
	if err := group.Delegate(s.process.pid); err != nil {
		return err
	}
	return group.Tighten(s.plan.Limits.Cgroup())
}
