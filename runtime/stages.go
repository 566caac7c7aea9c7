package runtime

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/journal"
	"github.com/caisson-run/caisson/runtime/layers"
)

// stage is one resource of a sandbox. Every host name derives from the
// sandbox's ID, so remove needs no memory of create and also works after a
// crash.
type stage struct {
	name   string
	create func(context.Context, *sandbox) error
	// adopt opens again what an earlier daemon held of a live sandbox; nil: it held nothing.
	adopt func(*recovery, context.Context, *sandbox) error
	// late says that adopt waits for others than the kernel: it holds up no other sandbox.
	late bool
	// update makes the resource of a live sandbox what c says, and returns what takes that
	// back, nil where nothing does; nil: the resource cannot change.
	update func(ctx context.Context, s *sandbox, c *change) (undo func() error, err error)
	remove func(ctx context.Context, id string) error // idempotent: absent is success; nil: nothing to remove
	// guard says that the stage keeps others from using the same: it is only
	// removed when all that came after it is gone.
	guard bool
}

// keptStages are those that an exited sandbox keeps until it is removed: its
// claim and its output.
const keptStages = 2

// allStages lists the resources of a sandbox: forwards to create, adopt and update, backwards
// to remove. The last ones only check that it came to life as it was declared.
func (m *Manager) allStages() []stage {
	return []stage{
		{name: "claim", create: m.createClaim, remove: m.removeClaim, guard: true},
		{name: "output", create: m.createOutput, remove: m.removeOutput},
		{name: "ids", create: m.createIDs, remove: m.removeIDs, guard: true},
		{name: "disk", create: m.createDisk, update: m.updateDisk, remove: m.removeDisk},
		{name: "mounts", create: m.createMounts, update: m.updateMounts, remove: m.removeMounts},
		{name: "rootfs", create: m.createRootfs, remove: m.removeRootfs},
		{name: "homes", create: m.createHomes, update: m.updateHomes, remove: m.removeHomes},
		{name: "own", create: m.createOwn, remove: m.removeOwn},
		{name: "ports", create: m.createPorts, adopt: (*recovery).adoptPorts, late: true, update: m.updatePorts, remove: m.removePorts},
		{name: "userns", create: m.createUserns, remove: m.removeUserns},
		{name: "netns", create: m.createNetns, remove: m.removeNetns},
		{name: "bridge", create: m.createBridge, remove: m.removeBridge},
		{name: "init", create: m.createInit, adopt: (*recovery).adoptInit, remove: m.removeInit},
		{name: "cgroup", create: m.createCgroup, remove: m.removeCgroup},
		{name: "container", create: m.createContainer, adopt: (*recovery).adoptContainer, update: m.updateContainer, remove: m.removeContainer},
		{name: "limits", create: m.tighten, update: m.updateLimits},
		{name: "egress", create: m.createEgress, adopt: (*recovery).adoptEgress, update: m.updateEgress, remove: m.removeEgress},
		{name: "nested", create: m.createNested, adopt: (*recovery).createNested, update: m.updateNested, remove: m.removeNested},
		{name: "start", create: m.startInit},
		{name: "hello", create: m.awaitInit},
		{name: "posture", create: m.checkPosture},
	}
}

// AdoptedStages names the stages that adopt opens again, and UpdatedStages those that a live
// sandbox can have changed, in their order. Each is a point at which tests let the daemon fail.
func AdoptedStages() []string { return stagesWith(func(s stage) bool { return s.adopt != nil }) }

// UpdatedStages is explained at AdoptedStages.
func UpdatedStages() []string { return stagesWith(func(s stage) bool { return s.update != nil }) }

func stagesWith(has func(stage) bool) (names []string) {
	for _, s := range new(Manager).allStages() {
		if has(s) {
			names = append(names, s.name)
		}
	}
	return names
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
	return removeFiles(h.paths.names(id), h.paths.applied(id)+".new", h.paths.applied(id), journal.Next(execs), execs, spec+".new", spec, record+".new", record, h.paths.sandbox(id))
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

func (h *host) createRootfs(ctx context.Context, s *sandbox) error {
	dirs, err := h.images.Layers(ctx, s.plan.Image)
	if err != nil {
		return err
	}
	marks, err := layers.Marks(dirs)
	if err != nil {
		return err
	}
	s.update(func() { s.record.Layers = marks })
	id := s.id
	for _, dir := range []string{h.paths.private(id), h.paths.layers(id), h.paths.rootfs(id)} {
		if err := makeDir(dir, 0o711); err != nil {
			return err
		}
	}
	files := mount.HostFiles(s.plan.Hostname(), s.plan.Resolvers...)
	if err := imageservice.AddAccount(files, dirs, s.plan); err != nil {
		return err
	}
	for _, point := range s.plan.FilePoints() {
		files[point] = ""
	}
	if err := mount.WritePrivate(h.paths.private(id), s.block.Base, s.plan.MountPoints(), files); err != nil {
		return err
	}
	root := mount.Root{
		Layers: dirs, Private: h.paths.private(id), Scratch: h.paths.layers(id), Target: h.paths.rootfs(id), IDs: s.ids,
	}
	if s.plan.WritableRoot {
		root.Disk = h.paths.disk(id)
		if err := prepareUpper(root.Disk, s); err != nil {
			return err
		}
	}
	if s.plan.Request.Build {
		root.Upper = h.paths.upper(id)
		if err := makeDir(root.Upper, 0o700); err != nil {
			return err
		}
		if err := mount.AttachUpper(root.Upper, s.block.Base, s.plan.Limits.TmpfsBytes, upperInodes); err != nil {
			return err
		}
	}
	return root.Attach()
}

func prepareUpper(disk string, s *sandbox) error {
	if s.plan.From != nil {
		return mount.ContinueUpper(disk)
	}
	return mount.PrepareUpper(disk, s.block.Base, s.plan.RootDirs)
}

// upperInodes bounds the files that a build step can make.
const upperInodes = 400_000

func (h *host) removeRootfs(_ context.Context, id string) error {
	return errors.Join(
		mount.RemovePointBehind(h.paths.rootfs(id)),
		mount.RemovePointBehind(h.paths.upper(id)),
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
	taken, err := m.stock.Take(path)
	if err == nil && !taken {
		err = netns.Create(path)
	}
	if err != nil {
		return err
	}
	s.network.Go(func() error {
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
