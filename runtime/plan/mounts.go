package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/volumes"
)

// VolumeType is the type of a mount whose source is the name of a volume of the caller's.
const VolumeType = "volume"

// SnapshotType is the type of a mount whose source is the name of a snapshot of a directory. It is
// copy-on-write.
const SnapshotType = "snapshot"

// maxMounts bounds the mounts beside the workspace.
const maxMounts = 16

// WorkspacePoint is where a workspace is attached on the host, below the sandbox's directory.
// MountsDir has the points of the other binds.
const (
	WorkspacePoint = "workspace"
	MountsDir      = "mounts"
)

// Mount is a mount that a sandbox has beside those of every sandbox. The workspace is one.
type Mount struct {
	Source   string   // of a bind: the directory or file of the host, or the name of a volume; empty is a tmpfs
	Volume   bool     // Source is the name of a volume
	Snapshot bool     // Source is the name of a snapshot
	From     *Origin  // that snapshot, if the request may have it
	Layers   []string // Source is a name in the image with these directories
	File     *mount.MemoryFile
	Target   string
	Point    string // of a bind: where it is attached on the host, below the sandbox's directory
	ReadOnly bool
	Cow      bool // what is written goes to the sandbox's disk, and not to Source
	// Lower and Changes are where the parts of a copy-on-write mount are, below the sandbox's
	// directory: Source, and what was written.
	Lower, Changes string
	Size           int64 // of a tmpfs, in bytes
	// Nested says that the target lies in a bind, among files that others may change
	// meanwhile. The daemon makes such a mount, and not the OCI runtime.
	Nested bool
}

// OnHost reports whether b shows a directory of the host that a request names.
func (b Mount) OnHost() bool {
	return b.Source != "" && !b.Volume && !b.Snapshot && len(b.Layers) == 0 && b.File == nil
}

// TakesFile reports whether b may be one of a regular file.
func (b Mount) TakesFile() bool { return b.OnHost() && b.Point != WorkspacePoint && !b.Cow }

// WritesHost reports whether the sandbox can change the directory of a bind.
func (b Mount) WritesHost() bool { return !b.ReadOnly && !b.Cow }

// The types of mounts that only build steps have: a part of an image, and a file that is on
// no disk.
const (
	TreeType = "tree"
	FileType = "file"
)

// Holds reports whether the target of other lies in b.
func (b Mount) Holds(other Mount) bool { return strings.HasPrefix(other.Target, b.Target+"/") }

// ownTrees are those that a sandbox brings itself: links of an image that lead there, and the
// file systems of the kernel, stay what they are.
var ownTrees = strings.Fields("/bin /boot /dev /lib /lib32 /lib64 /libx32 /proc /sbin /sys /run/caisson /var/run /usr/lib32 /usr/lib64 /usr/libx32 /usr/sbin")

// ownPoints are directories and files that every sandbox needs; a mount may lie below them.
var ownPoints = strings.Fields("/ /etc /etc/group /etc/hostname /etc/hosts /etc/passwd /etc/resolv.conf /home /run /tmp /usr /usr/bin /usr/lib /var /var/tmp")

// planMounts orders the workspace and the other mounts. Their sizes come with the limits. Of a
// workspace inside of the calling sandbox the grant says whether it is allowed.
func (p *Sandbox) planMounts(allowed mount.Allowed, inside bool, r CreateRequest) error {
	caches, errs := p.Profile.cacheMounts(r)
	p.MountRequests = append(p.Profile.mountsWith(r), caches...)
	if err := AtMost(len(p.MountRequests), maxMounts, "mounts"); err != nil {
		return err // each is compared with each
	}
	if w := r.Workspace; w != nil {
		errs = append(errs, checkWorkspaceMode(w.Mode), checkTarget("workspace path", w.Point()))
		if !inside {
			errs = append(errs, allowed.Check(w.Dir))
		}
		p.Mounts = append(p.Mounts, w.mount())
	}
	for i, asked := range p.MountRequests {
		if asked.Type == SnapshotType {
			asked.Cow = true
			p.MountRequests[i].Cow = true
		}
		m := Mount{Source: asked.Source, Volume: asked.Type == VolumeType, Snapshot: asked.Type == SnapshotType, Layers: asked.Layers, File: asked.File, Target: withoutLink(asked.Target), ReadOnly: asked.ReadOnly}
		if asked.Cow {
			m.Cow, m.Lower, m.Changes = true, cacheLower(i), cacheChanges(i)
		}
		if asked.Type != "tmpfs" {
			m.Point = bindPoint(i)
		}
		Override(&m.Size, asked.SizeBytes)
		errs = append(errs, asked.check(allowed, r.Build))
		p.Mounts = append(p.Mounts, m)
	}
	slices.SortStableFunc(p.Mounts, func(a, b Mount) int { return cmp.Compare(a.Target, b.Target) })
	for i := range p.Mounts {
		m := &p.Mounts[i]
		errs = append(errs, nest(p.Mounts[:i], m))
		if !m.Nested && m.Target != WorkspacePath && !r.Build { // the runtime makes those of a build step
			p.points = append(p.points, m.Target[min(1, len(m.Target)):])
		}
	}
	errs = append(errs, p.planClone(inside, r))
	if r.Pooled { // they come when it is taken, with the rights of its caller
		p.Mounts, p.MountRequests = nil, nil
	}
	return errors.Join(append(errs, p.planOwnWorkspace(r))...)
}

// mountsWith are the mounts of r, after those of p on whose target r mounts nothing itself.
// A step of a build gets none of p: they are not of its image.
func (p Profile) mountsWith(r CreateRequest) []MountRequest {
	var out []MountRequest
	for _, m := range p.Mounts {
		own := r.Workspace != nil && r.Workspace.Point() == m.Target
		own = own || slices.ContainsFunc(r.Mounts, func(o MountRequest) bool { return o.Target == m.Target })
		if !own && !r.Build {
			out = append(out, m)
		}
	}
	return append(out, r.Mounts...)
}

// CheckMounts reports every reason why no request could have the mounts of p.
func (p Profile) CheckMounts(allowed mount.Allowed) error {
	return (&Sandbox{Profile: p}).planMounts(allowed, false, CreateRequest{})
}

func bindPoint(i int) string { return filepath.Join(MountsDir, strconv.Itoa(i)) }

// BindPoints are where the directories of the host are attached that a request binds, below
// the sandbox's directory.
func BindPoints(w *WorkspaceRequest, mounts []MountRequest) (points []string) {
	switch {
	case w.Cow():
		points = append(points, CowLower)
	case w.Clone():
		points = append(points, CloneObjectsPoint)
	case w != nil:
		points = append(points, WorkspacePoint)
	}
	for i, m := range mounts {
		switch {
		case m.Cow:
			points = append(points, cacheLower(i))
		case m.Type != "tmpfs":
			points = append(points, bindPoint(i))
		}
	}
	return points
}

func (r MountRequest) check(allowed mount.Allowed, build bool) error {
	errs := []error{checkTarget("mount target", withoutLink(r.Target))}
	if r.Cow && (r.Type != VolumeType && r.Type != SnapshotType || r.ReadOnly) {
		errs = append(errs, Invalid("mount on %q: copy-on-write is for types volume and snapshot, and not with read-only", sbxerr.Clip(r.Target)))
	}
	if build && r.Type != "tmpfs" {
		errs = nil // see oci.Config
	}
	switch r.Type {
	case FileType:
		if !build || r.File == nil || !r.ReadOnly {
			errs = append(errs, Invalid("mount on %q: only a build step can have a file of memory, to read", sbxerr.Clip(r.Target)))
		}
	case TreeType:
		if !build || len(r.Layers) == 0 || !r.ReadOnly {
			errs = append(errs, Invalid("mount on %q: only a build step can have a tree, to read", sbxerr.Clip(r.Target)))
		}
	case "bind":
		errs = append(errs, allowed.Check(r.Source))
		if r.SizeBytes != nil {
			errs = append(errs, Invalid("mount on %q: a size is for type tmpfs", sbxerr.Clip(r.Target)))
		}
	case "tmpfs":
		if r.Source != "" || r.ReadOnly {
			errs = append(errs, Invalid("mount on %q: a tmpfs has no source and is not read-only", sbxerr.Clip(r.Target)))
		}
		if r.SizeBytes != nil {
			errs = append(errs, settings.Row("tmpfs_bytes").CheckNamed(*r.SizeBytes))
		}
	case VolumeType, SnapshotType:
		if r.Type == VolumeType {
			errs = append(errs, volumes.CheckName(r.Source))
		}
		if r.SizeBytes != nil {
			errs = append(errs, Invalid("mount on %q: a size is for type tmpfs", sbxerr.Clip(r.Target)))
		}
	default:
		errs = append(errs, Invalid("mount on %q: type %q is none of bind, volume, snapshot, tmpfs", sbxerr.Clip(r.Target), sbxerr.Clip(r.Type)))
	}
	return errors.Join(errs...)
}

// nest finds out whether m lies in one of the mounts before it.
func nest(before []Mount, m *Mount) error {
	for _, b := range before {
		switch {
		case b.Target == m.Target:
			return Invalid("two mounts have the target %q", sbxerr.Clip(m.Target))
		case !b.Holds(*m):
		case b.Source == "":
			return Invalid("mount on %q lies in the tmpfs on %q, which is empty: choose a target beside it", sbxerr.Clip(m.Target), sbxerr.Clip(b.Target))
		default:
			m.Nested = true
		}
	}
	return nil
}

// sizeMounts gives each tmpfs that names no size that of the sandbox's own.
func (p *Sandbox) sizeMounts() {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; m.Source == "" {
			m.Size = cmp.Or(m.Size, p.Limits.TmpfsBytes)
		}
	}
}

// LargestTmpfs is the size of the largest tmpfs.
func (p *Sandbox) LargestTmpfs() int64 {
	largest := max(p.Limits.TmpfsBytes, p.Limits.ShmBytes)
	for _, m := range p.Mounts {
		largest = max(largest, m.Size)
	}
	return largest
}

// SetFile says that the bind on target is one of a file: its mount point is a file then.
func (p *Sandbox) SetFile(target string) { p.files = append(p.files, target) }

// MountPoints are the directories that only this sandbox needs as mount points, below its
// root. A nested mount has its point in the bind. A ready sandbox has the points of its
// profile's mounts.
func (p *Sandbox) MountPoints() (dirs []string) {
	for _, point := range p.points {
		if slices.Contains(p.files, "/"+point) {
			point = path.Dir(point)
		}
		dirs = append(dirs, point)
	}
	return dirs
}

// FilePoints are the files that this sandbox needs as mount points.
func (p *Sandbox) FilePoints() []string {
	return slices.DeleteFunc(slices.Clone(p.points), func(point string) bool { return !slices.Contains(p.files, "/"+point) })
}

// FilesIn are those of h's points that are files.
func (p *Sandbox) FilesIn(h Home) []string {
	return slices.DeleteFunc(slices.Clone(h.Points), func(point string) bool { return !slices.Contains(p.files, path.Join(h.Target, point)) })
}

// specMounts are the mounts for [oci.Build]. The binds are attached below state.
func (p *Sandbox) specMounts(state string) (out []specs.Mount) {
	out = p.diskMounts(state)
	for i, h := range p.Homes {
		if h.Target != oci.HomeMount {
			out = append(out, specs.Mount{Destination: h.Target, Source: filepath.Join(state, HomePoint(i)), Options: []string{"rw", "exec"}})
		}
	}
	for _, m := range p.Mounts {
		switch {
		case m.Source == "":
			out = append(out, specs.Mount{Destination: m.Target, Type: "tmpfs", Source: "tmpfs", Options: []string{"size=" + strconv.FormatInt(m.Size, 10)}})
		case m.File != nil:
			exec := "noexec"
			if m.File.Program {
				exec = "exec"
			}
			out = append(out, specs.Mount{Destination: m.Target, Source: mount.MemoryFileIn(filepath.Join(state, m.Point)), Options: []string{"ro", exec}})
		case len(m.Layers) > 0:
			out = append(out, specs.Mount{Destination: m.Target, Source: filepath.Join(state, m.Point, m.Source), Options: []string{"ro", "exec"}})
		case m.ReadOnly:
			out = append(out, specs.Mount{Destination: m.Target, Source: filepath.Join(state, m.Point), Options: []string{"ro", "exec"}})
		default:
			out = append(out, specs.Mount{Destination: m.Target, Source: filepath.Join(state, m.Point), Options: []string{"rw", "exec"}})
		}
	}
	return out
}

func checkWorkspaceMode(mode string) error {
	switch mode {
	case "", "rw", "ro", modeCow, modeClone:
		return nil
	}
	return sbxerr.New(sbxerr.Workspace, "runtime.plan", "workspace mode %q is none of rw, ro, cow, clone", sbxerr.Clip(mode))
}

// checkTarget refuses paths inside that are the sandbox's own; kind says whose name it is.
func checkTarget(kind, name string) error {
	refuse := func(format string, args ...any) error {
		return sbxerr.WithRemedy(sbxerr.Workspace, "runtime.plan", fmt.Errorf(kind+" "+format, args...), otherTarget)
	}
	if !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) || len(name) >= unix.PathMax {
		return refuse("%q is not a clean absolute path", sbxerr.Clip(name))
	}
	if slices.Contains(ownPoints, name) {
		return refuse("%q is the sandbox's own", name)
	}
	if i := slices.IndexFunc(ownTrees, func(tree string) bool { return strings.HasPrefix(name+"/", tree+"/") }); i >= 0 {
		return refuse("%q is part of the sandbox's own %s", sbxerr.Clip(name), ownTrees[i])
	}
	return nil
}
