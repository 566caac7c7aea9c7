package plan

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/seccomp"
)

const (
	oomScoreAdj = 500
	// hardOpenFiles is the ceiling to which a command may raise its own limit
	// of descriptors: some programs need more than select(2) can hold.
	hardOpenFiles = 4096
	TmpfsInodes   = 100_000 // of each tmpfs
)

// Host holds the facts of the host that a spec depends on.
type Host struct {
	Cgroups  cgroups.Host
	Rlimits  []specs.POSIXRlimit // the daemon's own, which bound the sandboxes'; empty: nothing does
	OOMScore int                 // the daemon's own, below which no sandbox can go
}

// Places are the paths of one sandbox on the host.
type Places struct {
	Base                                            string // directory of the daemon that holds those of all sandboxes
	State, Rootfs, Init, Dev, NetNS, UserNS, Cgroup string
}

// Spec builds the OCI spec of a sandbox with the given block of host ids. [oci.VerifyAllowed]
// or [oci.VerifyUnisolated] shares no code with the builder and checks the
// result. The warnings name clamped limits.
func (p *Sandbox) Spec(h Host, at Places, block idblock.Block) (_ *specs.Spec, warnings []string, err error) {
	filter, err := p.Seccomp.Spec(p.Filter())
	if err != nil {
		return nil, nil, err
	}
	resources, err := p.Limits.Cgroup().Resources(h.Cgroups)
	if err != nil {
		return nil, nil, err
	}
	c := oci.Config{
		ID:          p.ID,
		Hostname:    p.Request.Hostname,
		Process:     pid1Process(p),
		StateDir:    at.State,
		RootPath:    at.Rootfs,
		InitDir:     at.Init,
		DevDir:      at.Dev,
		CgroupsPath: at.Cgroup,
		Seccomp:     filter,
		Resources:   resources,
		OOMScoreAdj: max(oomScoreAdj, h.OOMScore),
		TmpfsBytes:  p.Limits.TmpfsBytes,
		ShmBytes:    p.Limits.ShmBytes,
		TmpfsInodes: TmpfsInodes,
	}
	if p.Profile.Unisolated != nil {
		return p.unisolatedSpec(c, h, at)
	}
	c.Rlimits, warnings = oci.ClampRlimits(oci.Rlimits(p.rlimits()), h.Rlimits)
	c.HomeDir = p.homeDir(at.State)
	c.Allowed, c.NetNSPath, c.UserNSPath = p.allowed(), at.NetNS, at.UserNS
	c.IDMap, c.Mounts = oci.IDMap{HostBase: block.Base, Size: idblock.Size}, p.specMounts(at.State)
	spec, err := oci.Build(c)
	if err != nil {
		return nil, nil, err
	}
	return spec, warnings, sbxerr.Wrap(sbxerr.Internal, "runtime.spec", oci.VerifyAllowed(spec, c.Allowed))
}

// allowed returns the rights of p that other sandboxes lack.
func (p *Sandbox) allowed() oci.Allowed {
	if p.Request.Build {
		return oci.Allowed{WritableRoot: true, RootUser: true, Setup: true}
	}
	root := p.Profile.RootUser
	return oci.Allowed{WritableRoot: p.WritableRoot, RootUser: root != RootNone, Setup: root == RootSetup}
}

func (p *Sandbox) rlimits() oci.RlimitValues {
	return oci.RlimitValues{OpenFiles: uint64(p.Limits.OpenFiles), OpenFilesMax: uint64(p.Limits.HardOpenFiles()), PIDs: uint64(p.Limits.PIDs)}
}

// Filter returns the options of the seccomp filter.
func (p *Sandbox) Filter() seccomp.Options {
	return seccomp.Options{Network: p.Network != netns.ModeNone}
}

// pid1Process is caisson-init. Commands come later, by start requests.
func pid1Process(p *Sandbox) oci.Process {
	return oci.Process{
		Args:           []string{filepath.Join(initproto.Dir, initproto.BinaryName)},
		Env:            []string{"HOME=" + image.DefaultHome, "PATH=" + DefaultPath},
		Cwd:            "/",
		UID:            p.User.UID,
		GID:            p.User.GID,
		AdditionalGIDs: p.User.Groups,
	}
}

// HasMount reports whether something is mounted at target by spec.
func HasMount(spec *specs.Spec, target string) bool {
	return slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool { return m.Destination == target })
}

// TmpfsSizes returns the size in bytes of each tmpfs of spec that has one, by its path.
func TmpfsSizes(spec *specs.Spec) map[string]int64 {
	sizes := map[string]int64{}
	for _, m := range spec.Mounts {
		for _, o := range m.Options {
			size, sized := strings.CutPrefix(o, "size=")
			if n, err := strconv.ParseInt(size, 10, 64); sized && err == nil && m.Type == "tmpfs" {
				sizes[m.Destination] = n
			}
		}
	}
	return sizes
}
