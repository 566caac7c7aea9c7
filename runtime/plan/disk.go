package plan

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// DiskPoint is where the disk of a sandbox is mounted on the host, below its directory.
// DiskWorkspace is the directory there that is WorkspacePath inside.
const (
	DiskPoint     = "disk"
	DiskWorkspace = "workspace"
)

// Disk is the size of the sandbox's disk; zero is none.
func (l Limits) Disk() disk.Size { return disk.Size{Bytes: l.DiskBytes, Inodes: l.DiskInodes} }

// planDisk checks the disk, of which the limits are in range. A step of a build has none: it
// writes to a tmpfs, from where the daemon reads.
func (p *Sandbox) planDisk(pl Planner, r CreateRequest) error {
	if r.Build {
		if r.Limits.GetDiskBytes() != 0 || r.Limits.GetDiskInodes() != 0 {
			return Invalid("a build has no disk: leave disk and disk inodes out, and give --tmpfs for the room of a step")
		}
		p.Limits.DiskBytes, p.Limits.DiskInodes = 0, 0
		return nil
	}
	if err := checkRootfs(r.Rootfs); err != nil {
		return err
	}
	p.WritableRoot = p.writesRoot(r)
	if p.WritableRoot || p.copiesOnWrite(r) {
		p.Limits.DiskBytes = cmp.Or(p.Limits.DiskBytes, pl.DiskBytes)
	}
	if pl.From != nil {
		if err := p.originSize(pl.From, r.Limits); err != nil {
			return err
		}
	}
	size := p.Limits.Disk()
	switch {
	case size.Bytes == 0 && r.Limits.GetDiskInodes() != 0:
		return sbxerr.New(sbxerr.Limits, "runtime.plan", "disk inodes %d without a disk: give --disk SIZE too, such as 2G", size.Inodes)
	case size.Bytes == 0:
		p.Limits.DiskInodes = 0
		return nil
	}
	if row := settings.Row("disk_bytes"); row.Check(size.Bytes) != nil { // refused with the limits
		return nil
	}
	if err := size.Check(); err != nil || pl.Disk == nil {
		return err
	}
	return pl.Disk(size.Bytes)
}

// hasDisk reports whether r gets a disk.
func (p *Sandbox) hasDisk(r CreateRequest) bool {
	return !r.Build && (r.From != "" || p.Profile.Limits.DiskBytes != 0 || r.Limits.GetDiskBytes() != 0 || p.writesRoot(r) || p.copiesOnWrite(r))
}

// copiesOnWrite reports whether r has mounts of which the changes are on its disk.
func (p *Sandbox) copiesOnWrite(r CreateRequest) bool {
	return r.Workspace.OnDisk() || len(p.Profile.cachesOf(r)) > 0 || slices.ContainsFunc(p.Profile.mountsWith(r), func(m MountRequest) bool { return m.Cow || m.Type == SnapshotType })
}

// writesRoot reports whether r gets a root that can be written.
func (p *Sandbox) writesRoot(r CreateRequest) bool {
	return cmp.Or(r.Rootfs, p.Profile.Rootfs) == rootfsRW
}

const rootfsRW = "rw"

func checkRootfs(mode string) error {
	if mode != "" && mode != "ro" && mode != rootfsRW {
		return Invalid("rootfs %q is none of ro, rw", sbxerr.Clip(mode))
	}
	return nil
}

// planRootDirs makes the home of the user in a writable root, where the image has none.
func (p *Sandbox) planRootDirs(u Account, home string) error {
	name, under := strings.CutPrefix(home, oci.HomeMount+"/")
	if !homeForm.MatchString(home) || home != rootHome && home != oci.HomeMount && (!under || strings.Contains(name, "/")) {
		return nil
	}
	_, err := u.Layers.Lstat(home[1:])
	if !errors.Is(err, fs.ErrNotExist) {
		return sbxerr.Wrap(sbxerr.ImageContent, "runtime.home", err)
	}
	p.RootDirs = append(p.RootDirs, mount.Dir{Name: home[1:], Mode: 0o755, UID: p.User.UID, GID: p.User.GID})
	return nil
}

const rootHome = "/root"

// planOwnWorkspace makes WorkspacePath a directory of the disk where nothing else is mounted
// there. It is empty: nothing can be mounted in it.
func (p *Sandbox) planOwnWorkspace(r CreateRequest) error {
	own := Mount{Target: WorkspacePath}
	p.OwnWorkspace = p.hasDisk(r) && !slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Target == WorkspacePath })
	i := slices.IndexFunc(p.Mounts, own.Holds)
	if !p.OwnWorkspace || i < 0 {
		return nil
	}
	return Invalid("mount on %q lies in %s, which is on the sandbox's disk and empty: choose a target beside it", sbxerr.Clip(p.Mounts[i].Target), WorkspacePath)
}

// diskMounts are the mounts of the disk for [oci.Build]. It is attached below state.
func (p *Sandbox) diskMounts(state string) []specs.Mount {
	if !p.OwnWorkspace {
		return nil
	}
	return []specs.Mount{{Destination: WorkspacePath, Source: filepath.Join(state, DiskPoint, DiskWorkspace), Options: []string{"rw", "exec"}}}
}
