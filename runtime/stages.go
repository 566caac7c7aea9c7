package runtime

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/journal"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// stage is one resource of a sandbox. Every host name derives from the
// sandbox's ID, so remove needs no memory of create and also works after a
// crash.
type stage struct {
	name   string
	create func(context.Context, *sandbox) error
	remove func(ctx context.Context, id string) error // idempotent: absent is success; nil: nothing to remove
	// guard says that the stage keeps others from using the same: it is only
	// removed when all that came after it is gone.
	guard bool
}

// keptStages are those that an exited sandbox keeps until it is removed: its
// claim and its output.
const keptStages = 2

// allStages lists what a sandbox is made of: read forwards to create,
// backwards to remove. The last ones only see whether it came to life as it was
// declared.
func (m *Manager) allStages() []stage {
	return []stage{
		{name: "claim", create: m.createClaim, remove: m.removeClaim, guard: true},
		{name: "output", create: m.createOutput, remove: m.removeOutput},
		{name: "ids", create: m.createIDs, remove: m.removeIDs, guard: true},
		{name: "rootfs", create: m.createRootfs, remove: m.removeRootfs},
		{name: "own", create: m.createOwn, remove: m.removeOwn},
		{name: "mounts", create: m.createMounts, remove: m.removeMounts},
		{name: "ports", create: m.createPorts, remove: m.removePorts},
		{name: "userns", create: m.createUserns, remove: m.removeUserns},
		{name: "netns", create: m.createNetns, remove: m.removeNetns},
		{name: "bridge", create: m.createBridge, remove: m.removeBridge},
		{name: "init", create: m.createInit, remove: m.removeInit},
		{name: "nested", create: m.createNested, remove: m.removeNested},
		{name: "cgroup", create: m.createCgroup, remove: m.removeCgroup},
		{name: "container", create: m.createContainer, remove: m.removeContainer},
		{name: "egress", create: m.createEgress, remove: m.removeEgress},
		{name: "limits", create: m.tighten},
		{name: "start", create: m.startInit},
		{name: "hello", create: m.awaitInit},
		{name: "posture", create: m.checkPosture},
	}
}

func (h *host) createClaim(_ context.Context, s *sandbox) error {
	for _, dir := range []string{h.paths.sandbox(s.id), h.paths.spare(s.id)} {
		if err := makeDir(dir, 0o700); err != nil {
			return err
		}
	}
	return journal.Create(h.paths.execs(s.id))
}

func (h *host) removeClaim(_ context.Context, id string) error {
	if err := h.removeFlat(id, h.paths.spare(id)); err != nil {
		return err
	}
	record, spec, execs := h.paths.record(id), h.paths.spec(id), h.paths.execs(id)
	return removeFiles(h.paths.names(id), journal.Next(execs), execs, spec+".new", spec, record+".new", record, h.paths.sandbox(id))
}

func (h *host) createOutput(_ context.Context, s *sandbox) error {
	return makeDir(h.paths.output(s.id), 0o700)
}

func (h *host) removeOutput(_ context.Context, id string) error {
	return h.removeFlat(id, h.paths.output(id))
}

func (h *host) removeFlat(id, dir string) error {
	left, err := owndir.RemoveFlat(dir)
	for _, path := range left {
		h.log.Warn("left what the daemon did not make: look at it and remove it", "sandbox", id, "path", path)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "runtime.remove", err)
}

func (h *host) createIDs(_ context.Context, s *sandbox) error {
	block, err := h.blocks.Claim(s.id)
	if err != nil {
		return err
	}
	s.update(func() { s.block = block })
	if s.ids, err = h.blockNS(block); err != nil {
		return err
	}
	if err := h.admitRoot(s.id, block.Base); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.HostIDBase = block.Base
	return h.writeLocked(s)
}

// admitRoot lets the sandbox's root, to the host an unprivileged user, walk
// through the sandbox's directory to its root file system. No other user of
// the host may: what is mounted below, such as a workspace, can lie behind
// directories that are closed to them, and /proc/mounts tells them the ID.
func (h *host) admitRoot(id string, base uint32) error {
	return sbxerr.Wrap(sbxerr.StateDir, "runtime.ids", owndir.Give(h.paths.sandbox(id), 0o710, 0, int(base)))
}

func (h *host) removeIDs(_ context.Context, id string) error { return h.blocks.Release(id) }

func (m *Manager) createRootfs(ctx context.Context, s *sandbox) error {
	layers, err := m.layers(ctx, s.plan.Image)
	if err != nil {
		return err
	}
	marks, err := markLayers(layers)
	if err != nil {
		return err
	}
	s.update(func() { s.record.Layers = marks })
	id := s.id
	for _, dir := range []string{m.paths.private(id), m.paths.layers(id), m.paths.rootfs(id)} {
		if err := makeDir(dir, 0o711); err != nil {
			return err
		}
	}
	if err := mount.WritePrivate(m.paths.private(id), s.block.Base, s.plan.MountPoints(), mount.HostFiles(s.plan.Hostname(), s.plan.Resolvers...)); err != nil {
		return err
	}
	root := mount.Root{
		Layers: layers, Private: m.paths.private(id), Scratch: m.paths.layers(id), Target: m.paths.rootfs(id), IDs: s.ids,
	}
	if s.plan.Request.Build {
		root.Upper = m.paths.upper(id)
		if err := makeDir(root.Upper, 0o700); err != nil {
			return err
		}
		if err := mount.AttachUpper(root.Upper, s.block.Base, s.plan.Limits.TmpfsBytes, upperInodes); err != nil {
			return err
		}
	}
	return root.Attach()
}

// upperInodes bounds the files that a build step can make.
const upperInodes = 400_000

func (h *host) removeRootfs(_ context.Context, id string) error {
	return errors.Join(
		mount.RemovePoint(h.paths.rootfs(id)),
		mount.RemovePoint(h.paths.upper(id)),
		mount.RemoveScratch(h.paths.layers(id)),
		mount.RemovePoint(h.paths.layers(id)),
		mount.RemovePrivate(h.paths.private(id)))
}

func (h *host) createOwn(_ context.Context, s *sandbox) error {
	dir := h.paths.own(s.id)
	if err := makeDir(dir, 0o711); err != nil {
		return err
	}
	return mount.AttachOwn(dir, initproto.EndsSize)
}

func (h *host) removeOwn(_ context.Context, id string) error {
	return mount.RemovePoint(h.paths.own(id))
}

func (h *host) createUserns(_ context.Context, s *sandbox) error {
	return s.ids.Pin(h.paths.userns(s.id))
}

func (h *host) removeUserns(_ context.Context, id string) error {
	return mount.Unpin(h.paths.userns(id))
}

// createNetns takes a namespace that is ready, where s needs rules. If there is none they
// are programmed. The way to the gateway opens when they are in force.
func (m *Manager) createNetns(ctx context.Context, s *sandbox) error {
	path := m.paths.netns(s.id)
	redirect, err := m.redirectFor(s)
	if err != nil {
		return err
	}
	if redirect == nil {
		return netns.Create(path)
	}
	taken, err := m.stock.take(path)
	if err == nil && !taken {
		err = netns.Create(path)
	}
	if err != nil {
		return err
	}
	s.network = beside(func() error {
		if !taken {
			if _, err := netns.Program(path); err != nil {
				return err
			}
		}
		return m.installRedirect(ctx, s, *redirect)
	})
	return nil
}

func (h *host) removeNetns(_ context.Context, id string) error {
	return netns.Remove(h.paths.netns(id))
}

// createInit gives the sandbox a copy of PID 1's program of its own, and the socket
// on which it is awaited.
func (h *host) createInit(_ context.Context, s *sandbox) error {
	dir := h.paths.init(s.id)
	if err := makeDir(dir, 0o711); err != nil {
		return err
	}
	if err := h.init.CopyTo(filepath.Join(dir, initproto.BinaryName)); err != nil {
		return err
	}
	u := s.plan.User
	var err error
	s.listener, err = pid1.Listen(dir, int(s.block.Base+u.UID), int(s.block.Base+u.GID))
	return err
}

func (h *host) removeInit(_ context.Context, id string) error {
	dir := h.paths.init(id)
	return removeFiles(filepath.Join(dir, initproto.SocketName), filepath.Join(dir, initproto.WakeName), filepath.Join(dir, initproto.BinaryName), dir)
}

// createCgroup makes nothing: the OCI runtime makes the group as the spec says. The
// sockets of the group are seen from the first one on.
func (m *Manager) createCgroup(ctx context.Context, _ *sandbox) error { return m.awaitMemoryWatch(ctx) }

func (h *host) removeCgroup(ctx context.Context, id string) error {
	group, err := h.group(id)
	if err != nil {
		return err
	}
	if err := h.killStray(ctx, group); err != nil {
		return err
	}
	return group.Remove(ctx)
}

func (h *host) group(id string) (*cgroups.Group, error) {
	return cgroups.Open(h.groups, h.cgroupPath(id))
}

func (h *host) cgroupPath(id string) string { return "/" + h.opts.CgroupParent + "/" + id }

func (m *Manager) createContainer(ctx context.Context, s *sandbox) error {
	return m.createTask(ctx, s, forEngine)
}

// createTask makes the container by the spec that adapt makes of the declared one.
func (m *Manager) createTask(ctx context.Context, s *sandbox, adapt func(*specs.Spec) *specs.Spec) error {
	if err := m.findDisks(s); err != nil {
		return err
	}
	refusing := m.refuseUncounted(s.plan)
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
	return m.attachLate(ctx, s, s.plan, nested)
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

func (m *Manager) removeContainer(ctx context.Context, id string) error {
	m.shims.drop(id)
	return m.engine.Delete(ctx, id)
}
