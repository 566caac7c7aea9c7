package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/sbxerr"
	"github.com/caisson-run/caisson/seccomp"
)

const (
	oomScoreAdj = 500
	// hardOpenFiles is the ceiling to which a command may raise its own limit
	// of descriptors: some programs need more than select(2) can hold.
	hardOpenFiles = 4096
	tmpfsInodes   = 100_000 // of each tmpfs
)

// buildSpec composes the leaves into the OCI spec of a sandbox. It is pure but
// for what it knows of the host, and its result is checked by an oracle that
// shares no code with the builder.
func (m *Manager) buildSpec(p *plan, block idblock.Block) (*specs.Spec, []string, error) {
	filter, err := p.seccomp.Spec(p.filter())
	if err != nil {
		return nil, nil, err
	}
	resources, err := p.limits.cgroup().Resources(m.host)
	if err != nil {
		return nil, nil, err
	}
	rlimits, warnings := oci.ClampRlimits(oci.Rlimits(oci.RlimitValues{
		OpenFiles:    uint64(p.limits.OpenFiles),
		OpenFilesMax: uint64(p.limits.HardOpenFiles()),
		PIDs:         uint64(p.limits.PIDs),
	}), m.rlimit)
	spec, err := oci.Build(oci.Config{
		ID:          p.id,
		Process:     pid1Process(p),
		StateDir:    m.paths.sandbox(p.id),
		RootPath:    m.paths.rootfs(p.id),
		InitDir:     m.paths.init(p.id),
		DevDir:      m.paths.dev(p.id),
		NetNSPath:   m.paths.netns(p.id),
		UserNSPath:  m.paths.userns(p.id),
		IDMap:       oci.IDMap{HostBase: block.Base, Size: idblock.Size},
		CgroupsPath: m.cgroupPath(p.id),
		Seccomp:     filter,
		Resources:   resources,
		Rlimits:     rlimits,
		OOMScoreAdj: max(oomScoreAdj, m.oomScore),
		TmpfsBytes:  p.limits.TmpfsBytes,
		TmpfsInodes: tmpfsInodes,
		Mounts:      m.workspaceMount(p),
	})
	if err != nil {
		return nil, nil, err
	}
	return spec, warnings, sbxerr.Wrap(sbxerr.Internal, "runtime.spec", oci.Verify(spec))
}

// filter is how the sandbox's filter is made.
func (p *plan) filter() seccomp.Options {
	return seccomp.Options{Network: p.network != netns.ModeNone}
}

// pid1Process is caisson-init. What the command gets is not its business: that
// comes with the start request.
func pid1Process(p *plan) oci.Process {
	return oci.Process{
		Args:           []string{filepath.Join(initproto.Dir, initproto.BinaryName)},
		Env:            []string{"HOME=" + homePath, "PATH=" + defaultPath},
		Cwd:            "/",
		UID:            p.user.UID,
		GID:            p.user.GID,
		AdditionalGIDs: p.user.Groups,
	}
}

func (m *Manager) workspaceMount(p *plan) []specs.Mount {
	if p.request.Workspace == nil {
		return nil
	}
	options := []string{"rw", "exec"}
	if p.readOnly {
		options = []string{"ro", "exec"}
	}
	return []specs.Mount{{Destination: workspacePath, Source: m.paths.workspace(p.id), Options: options}}
}

// Spec returns what a run of r would get. Nothing is made; the ID and the
// block of host ids are those that a first sandbox could have.
func (m *Manager) Spec(ctx context.Context, r Request) (*SpecView, error) {
	defer m.Busy()()
	p, _, err := m.planMain(ctx, r)
	if err != nil {
		return nil, err
	}
	spec, _, err := m.buildSpec(p, m.blocks.First())
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "runtime.spec", err)
	}
	view := &SpecView{
		SpecJSON: data, CgroupValues: map[string]string{}, Mounts: oci.MountLines(spec), SeccompProfile: p.seccomp.Name,
		NetworkRules: p.network.Describe(),
	}
	if p.network == netns.ModeBridge {
		view.NetworkRules = m.opts.Network.Bridge.Describe(m.blocks.Number(m.blocks.First()))
	}
	for _, port := range p.ports {
		view.NetworkRules = append(view.NetworkRules, "publish "+port.String()+": who connects there is connected to 127.0.0.1 inside, from 127.0.0.1")
	}
	if p.policy.AllowECH {
		view.NetworkRules = append(view.NetworkRules, "allow-ech: TLS clients may encrypt the name that they ask for")
	}
	for _, n := range p.exposed {
		view.NetworkRules = append(view.NetworkRules, fmt.Sprintf("expose %d: links of the same owner's sandboxes may lead there", n))
	}
	for _, f := range p.limits.cgroup().Files(m.host) {
		view.CgroupValues[f.Name] = f.Value
	}
	for _, row := range p.seccomp.Rows(p.filter()) {
		view.SeccompRules = append(view.SeccompRules, SeccompRule(row))
	}
	return view, nil
}
