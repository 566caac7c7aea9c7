package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/sbxerr"
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
		{name: "workspace", create: m.createWorkspace, remove: m.removeWorkspace},
		{name: "netns", create: m.createNetns, remove: m.removeNetns},
		{name: "init", create: m.createInit, remove: m.removeInit},
		{name: "cgroup", create: m.createCgroup, remove: m.removeCgroup},
		{name: "container", create: m.createContainer, remove: m.removeContainer},
		{name: "start", create: m.startInit},
		{name: "hello", create: m.awaitInit},
		{name: "posture", create: m.checkPosture},
	}
}

func (m *Manager) createClaim(_ context.Context, s *sandbox) error {
	return makeDir(m.paths.sandbox(s.plan.id), 0o700)
}

func (m *Manager) removeClaim(_ context.Context, id string) error {
	record := m.paths.record(id)
	return removeFiles(record+".new", record, m.paths.sandbox(id))
}

func (m *Manager) createOutput(_ context.Context, s *sandbox) error {
	return makeDir(m.paths.output(s.plan.id), 0o700)
}

func (m *Manager) removeOutput(_ context.Context, id string) error {
	return removeFiles(m.paths.stdout(id), m.paths.stderr(id), m.paths.output(id))
}

func (m *Manager) createIDs(_ context.Context, s *sandbox) error {
	block, err := m.blocks.Claim(s.plan.id)
	if err != nil {
		return err
	}
	s.update(func() { s.block = block })
	if s.ids, err = m.blockNS(block); err != nil {
		return err
	}
	if err := m.admitRoot(s.plan.id, block.Base); err != nil {
		return err
	}
	r := s.record
	r.HostIDBase = block.Base
	return r.write(m.paths.record(s.plan.id))
}

// admitRoot lets the sandbox's root, to the host an unprivileged user, walk
// through the sandbox's directory to its root file system. No other user of
// the host may: what is mounted below, such as a workspace, can lie behind
// directories that are closed to them, and /proc/mounts tells them the ID.
func (m *Manager) admitRoot(id string, base uint32) error {
	dir := m.paths.sandbox(id)
	if err := os.Lchown(dir, 0, int(base)); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.ids", err)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "runtime.ids", os.Chmod(dir, 0o710))
}

func (m *Manager) removeIDs(_ context.Context, id string) error { return m.blocks.Release(id) }

func (m *Manager) createRootfs(ctx context.Context, s *sandbox) error {
	layers, err := m.images.Layers(ctx, s.plan.image)
	if err != nil {
		return err
	}
	id := s.plan.id
	for _, dir := range []string{m.paths.private(id), m.paths.layers(id), m.paths.rootfs(id)} {
		if err := makeDir(dir, 0o711); err != nil {
			return err
		}
	}
	if err := mount.WritePrivate(m.paths.private(id), s.block.Base, nil, mount.HostFiles(id)); err != nil {
		return err
	}
	root := mount.Root{
		Layers: layers, Private: m.paths.private(id), Scratch: m.paths.layers(id), Target: m.paths.rootfs(id), IDs: s.ids,
	}
	return root.Attach()
}

func (m *Manager) removeRootfs(_ context.Context, id string) error {
	return errors.Join(
		mount.RemovePoint(m.paths.rootfs(id)),
		mount.RemoveScratch(m.paths.layers(id)),
		mount.RemovePoint(m.paths.layers(id)),
		mount.RemovePrivate(m.paths.private(id)))
}

func (m *Manager) createWorkspace(_ context.Context, s *sandbox) (err error) {
	request := s.plan.request.Workspace
	if request == nil {
		return nil
	}
	ws, err := m.opts.Workspaces.OpenWorkspace(request.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	uids, gids := ws.Owner(s.block.Base+s.plan.user.uid, s.block.Base+s.plan.user.gid)
	ns, err := mount.NewUserNS(uids, gids)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	point := m.paths.workspace(s.plan.id)
	if err := makeDir(point, 0o700); err != nil {
		return err
	}
	return ws.Attach(point, s.plan.readOnly, ns)
}

func (m *Manager) removeWorkspace(_ context.Context, id string) error {
	return mount.RemovePoint(m.paths.workspace(id))
}

func (m *Manager) createNetns(_ context.Context, s *sandbox) error {
	return netns.Create(m.paths.netns(s.plan.id))
}

func (m *Manager) removeNetns(_ context.Context, id string) error {
	return netns.Remove(m.paths.netns(id))
}

// createInit gives the sandbox a copy of PID 1's program of its own: a shared
// file would share its page cache with every sandbox and the host
// (CVE-2022-0847 and its kind).
func (m *Manager) createInit(_ context.Context, s *sandbox) error {
	dir := m.paths.init(s.plan.id)
	if err := makeDir(dir, 0o711); err != nil {
		return err
	}
	program := filepath.Join(dir, initproto.BinaryName)
	if err := os.WriteFile(program, m.init, 0o555); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.init", fmt.Errorf("copy PID 1's program: %w", err))
	}
	u := s.plan.user
	var err error
	s.listener, err = pid1.Listen(dir, int(s.block.Base+u.uid), int(s.block.Base+u.gid))
	return err
}

func (m *Manager) removeInit(_ context.Context, id string) error {
	dir := m.paths.init(id)
	return removeFiles(filepath.Join(dir, initproto.SocketName), filepath.Join(dir, initproto.BinaryName), dir)
}

// createCgroup makes nothing: the OCI runtime makes the group as the spec
// says. The stage is here for its removal.
func (m *Manager) createCgroup(context.Context, *sandbox) error { return nil }

func (m *Manager) removeCgroup(ctx context.Context, id string) error {
	group, err := m.group(id)
	if err != nil {
		return err
	}
	return group.Remove(ctx)
}

func (m *Manager) group(id string) (*cgroups.Group, error) {
	return cgroups.Open(m.host, m.cgroupPath(id))
}

func (m *Manager) cgroupPath(id string) string { return "/" + m.opts.CgroupParent + "/" + id }

func (m *Manager) createContainer(ctx context.Context, s *sandbox) error {
	spec, warnings, err := m.buildSpec(s.plan, s.block)
	if err != nil {
		return err
	}
	s.warn(warnings...)
	s.update(func() { s.spec = spec })
	pid, err := m.engine.Create(ctx, Container{ID: s.plan.id, Spec: spec, Labels: s.plan.labels()})
	if err != nil {
		return err
	}
	process, err := openProcess(pid)
	if err != nil {
		return err
	}
	s.update(func() { s.process = process })
	group, err := m.group(s.plan.id)
	if err != nil {
		return err
	}
	return group.Tighten(s.plan.limits.cgroup()) // before PID 1 opens its socket
}

func (m *Manager) removeContainer(ctx context.Context, id string) error {
	return m.engine.Delete(ctx, id)
}
