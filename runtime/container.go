package runtime

import (
	"context"
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

func (m *Manager) createContainer(ctx context.Context, s *sandbox) error {
	return m.createTask(ctx, s, forEngine)
}

// createTask makes the container by the spec that adapt makes of the declared one.
func (m *Manager) createTask(ctx context.Context, s *sandbox, adapt func(*specs.Spec) *specs.Spec) error {
	if err := m.findDisks(s); err != nil {
		return err
	}
	refusing := refuseUncounted(s.plan, m.memory.Uncounted())
	spec, warnings, err := m.buildSpec(refusing, s.block)
	if err != nil {
		return err
	}
	if refusing != s.plan {
		warnings = append(warnings, uncountedWarning)
	}
	s.warn(warnings...)
	s.update(func() { s.spec = spec })
	if err := writeRecord(m.paths.spec(s.id), spec); err != nil {
		return err
	}
	pid, err := m.engine.Create(ctx, Container{ID: s.id, Spec: adapt(spec), Labels: s.plan.Labels(), Group: m.shims.take(s.id)})
	if err != nil {
		return err
	}
	process, err := openProcess(pid)
	if err != nil {
		return err
	}
	_, began, err := processStat(pid)
	s.update(func() { s.process, s.record.PID, s.record.PIDBegan = process, pid, began })
	if err != nil {
		return sbxerr.Wrap(sbxerr.Init, "runtime.process", err)
	}
	return m.attachLate(ctx, s, s.plan, false)
}

// forEngine is s without what others see to. The mounts in a bind are left to attachLate. The resource limits are left to
// tighten: the OCI runtime may set those of a process of another user only with
// CAP_SYS_RESOURCE, which root does not have on every host. The mappings of ids are
// those of the user namespace that is joined; runc calls it no valid configuration
// to name both.
func forEngine(s *specs.Spec) *specs.Spec {
	out, process, linux := *s, *s.Process, *s.Linux
	process.Rlimits = nil
	linux.UIDMappings, linux.GIDMappings = nil, nil
	out.Process, out.Linux, out.Mounts = &process, &linux, oci.RuntimeMounts(s)
	return &out
}

// adoptContainer reads the spec by which s was made.
func (r *recovery) adoptContainer(_ context.Context, s *sandbox) error {
	spec, err := readSpec(r.paths.spec(s.id), &r.filters)
	if err == nil {
		s.update(func() { s.spec = spec })
	}
	return err
}

// updateContainer has the spec of a sandbox of the pool say what it is taken for, and its
// tmpfs follow the spec. The disks are known since the mounts are there.
func (h *host) updateContainer(_ context.Context, s *sandbox, c *change) (undo func() error, err error) {
	p := c.plan
	if p == nil {
		return nil, nil
	}
	disks, err := h.disksOf(c.to)
	if err != nil {
		return nil, err
	}
	p.Limits.Disks, c.to.Limits.Disks = disks, disks
	sizes := plan.TmpfsSizes(s.spec)
	if err := h.declare(s, p, c.from); err != nil {
		return nil, err
	}
	return nil, resizeTmpfs(s, sizes)
}

// declare makes the spec of s that of p, against which another daemon checks it,
// where it is another than it was made with.
func (h *host) declare(s *sandbox, p *plan.Sandbox, have record) error {
	if len(p.Mounts) == 0 && p.Limits == have.Limits {
		return nil
	}
	spec, _, err := h.buildSpec(p, s.block) // what it warns of was said when s was made
	if err != nil {
		return err
	}
	s.update(func() { s.spec, s.stale = spec, true })
	return writeRecord(h.paths.spec(s.id), spec)
}

// resizeTmpfs gives every tmpfs of s the size that its spec declares, where the spec had
// another. No command has run there, so there is room for what they hold.
func resizeTmpfs(s *sandbox, had map[string]int64) error {
	sizes := plan.TmpfsSizes(s.spec)
	maps.DeleteFunc(sizes, func(point string, size int64) bool {
		old, there := had[point]
		return !there || old == size // those of the request are not there yet
	})
	if len(sizes) == 0 {
		return nil
	}
	return mount.ResizeTmpfs(s.process.file, sizes)
}

func (m *Manager) removeContainer(ctx context.Context, id string) error {
	m.shims.drop(id)
	return m.engine.Delete(ctx, id)
}
