package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

// This file has the sandbox without isolation: its root file system is the host's, and its
// user one of the host.

// unisolatedStages lists the parts of such a sandbox. Their names are among those of
// allStages, whose order they have, so that removal, which knows only an ID, takes them too.
func (m *Manager) unisolatedStages() []stage {
	return []stage{
		{name: "claim", create: m.createClaim},
		{name: "output", create: m.createOutput},
		{name: "ids", create: m.createHostIDs},
		{name: "rootfs", create: m.createPlaceholder},
		{name: "own", create: m.createOwn},
		{name: "init", create: m.createInit},
		{name: "cgroup", create: m.createCgroup},
		{name: "container", create: m.createUnisolated},
		{name: "limits", create: m.tightenGroup},
		{name: "start", create: m.startInit},
		{name: "hello", create: m.awaitInit},
		{name: "posture", create: m.checkPosture},
	}
}

// stagesOf lists the stages that make a sandbox of p.
func (m *Manager) stagesOf(p *plan.Sandbox) []stage {
	if p.Profile.Unisolated != nil {
		return m.unisolatedStages()
	}
	return m.stages
}

// unisolated reports whether the sandbox of r has no isolation from the host.
func (r record) unisolated() bool { return r.Preset != nil && r.Preset.Unisolated != nil }

// isolation is that of the sandbox's profile when it was made.
func (r record) isolation() string {
	if r.unisolated() {
		return plan.IsolationNone
	}
	return plan.IsolationSandbox
}

// createHostIDs takes no block of ids: those of the sandbox are the host's.
func (h *host) createHostIDs(_ context.Context, s *sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.writeLocked(s)
}

// hostTree is the root of such a sandbox. The daemon's own directory is covered by that of
// PID 1.
func (h *host) hostTree() mount.HostTree {
	return mount.HostTree{Without: []string{h.paths.state, h.paths.root}, Keep: []string{"/proc", "/dev", h.paths.state}}
}

// createPlaceholder makes the root with which the OCI runtime begins.
func (h *host) createPlaceholder(_ context.Context, s *sandbox) error {
	if err := makeDir(h.paths.rootfs(s.id), 0o711); err != nil {
		return err
	}
	return h.hostTree().AttachPlaceholder(h.paths.rootfs(s.id))
}

// createUnisolated makes the container, and gives it the host's tree before anything runs in it.
func (m *Manager) createUnisolated(ctx context.Context, s *sandbox) error {
	// The OCI runtime may set the resource limits, since the process is still root's then.
	if err := m.createTask(ctx, s, func(spec *specs.Spec) *specs.Spec { return spec }); err != nil {
		return err
	}
	places, err := m.hostTree().Enter(s.process.file)
	s.update(func() { s.record.HostMounts = places })
	return err
}

// checkHostUser refuses a user of the profile that is one of a sandbox with isolation, and then
// checks that the caller of p has its workspace, and that the user may enter it. The path that
// the command gets has no symbolic links.
func (h *host) checkHostUser(ctx context.Context, p *plan.Sandbox) (err error) {
	u, w := p.Profile.Unisolated, p.Request.Workspace
	if h.opts.IDs.Holds(u.UID) || h.opts.IDs.Holds(u.GID) {
		return sbxerr.WithRemedy(sbxerr.DaemonConf, "runtime.plan", fmt.Errorf("the user %d:%d of profile %q lies in the ids of the sandboxes", u.UID, u.GID, p.ProfileName),
			"name another user in unisolated.user, or choose another ids.base")
	}
	if w == nil {
		return nil
	}
	dir, err := p.Grant.CheckWorkspace(ctx, w.Dir, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	p.Cwd = dir.File.Name()
	return errors.Join(h.settings().Workspaces.Check(p.Cwd), p.Grant.CheckEntry(ctx, u.UID, u.GID, p.Cwd))
}

// isHosts reports whether a network is the host's own, of which nothing is counted, refused
// or changed.
func isHosts(mode netns.Mode) bool { return mode == plan.HostNetwork }

// errHostNetwork refuses questions about a policy, and changes of it.
func errHostNetwork() error {
	return sbxerr.New(sbxerr.Unisolated, "runtime.policy", "a sandbox with isolation none has the host's network: no policy is in force")
}
