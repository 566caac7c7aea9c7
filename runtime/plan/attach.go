package plan

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// Attachment is a workspace or a snapshot for a live sandbox, and what the sandbox has.
type Attachment struct {
	Workspace     WorkspaceRequest
	Name          string // of the sandbox
	Profile       *Profile
	Have          *WorkspaceRequest
	Mounts        []MountRequest
	Disk          bool
	SnapshotOnEnd string
	Spec          *specs.Spec
}

// AttachRequest asks for a workspace, or for the directory of a snapshot.
type AttachRequest struct {
	Workspace *WorkspaceRequest
	Snapshot  string // its name, where Workspace is nil
	Path      string // where its directory is mounted; empty is where it was
}

// Plan plans what r asks for. from is the snapshot that it names, and nil for a workspace.
func (a Attachment) Plan(r AttachRequest, from *Origin, allowed *mount.Allowed) (*Sandbox, error) {
	if from != nil {
		return a.Snapshot(*from, r.Path)
	}
	a.Workspace = *r.Workspace
	b, err := a.Mount(allowed)
	return &Sandbox{Request: CreateRequest{Workspace: r.Workspace}, Mounts: []Mount{b}, MountRequests: a.Mounts}, err
}

// Mount plans the mount of the workspace, or refuses it. allowed is nil for a directory in the workspace of a
// calling sandbox.
func (a Attachment) Mount(allowed *mount.Allowed) (Mount, error) {
	const op = "runtime.attach"
	w := &a.Workspace
	refuse := func(remedy, format string, args ...any) error {
		return sbxerr.WithRemedy(sbxerr.Workspace, op, fmt.Errorf(format, args...), remedy)
	}
	const another = "create another sandbox with --workspace, or copy the files: caisson cp"
	errs := []error{checkWorkspaceMode(w.Mode)}
	if allowed != nil {
		errs = append(errs, allowed.Check(w.Dir))
	}
	inWay := slices.IndexFunc(a.Mounts, func(m MountRequest) bool {
		return m.Target == WorkspacePath || strings.HasPrefix(m.Target, WorkspacePath+"/")
	})
	switch {
	case a.Profile != nil && a.Profile.Unisolated != nil:
		errs = append(errs, NotEnforced("a workspace of its own"))
	case a.Have != nil:
		errs = append(errs, refuse(another, "sandbox %q has the workspace %q", a.Name, a.Have.Dir))
	case inWay >= 0:
		errs = append(errs, refuse(another, "sandbox %q has a mount on %q", a.Name, a.Mounts[inWay].Target))
	}
	if w.Point() != WorkspacePath {
		errs = append(errs, refuse("leave the path out, or create another sandbox with --workspace", "workspace path %q: a live sandbox gets a workspace at %s alone", sbxerr.Clip(w.Path), WorkspacePath))
	}
	if w.Cow() && !a.Disk {
		errs = append(errs, refuse("create a sandbox with --disk SIZE, or attach the directory read-only, DIR:ro", "sandbox %q has no disk for what is written to a copy-on-write workspace", a.Name))
	}
	if w.Clone() {
		errs = append(errs, refuse("create another sandbox with --workspace DIR:clone, or attach the directory copy-on-write, DIR:cow", "a live sandbox gets no git clone"))
	}
	if w.Cow() && a.SnapshotOnEnd != "" {
		errs = append(errs, sbxerr.New(sbxerr.SnapshotWorkspace, op, "a snapshot %q at the end of sandbox %q", sbxerr.Clip(a.SnapshotOnEnd), a.Name))
	}
	return w.mount(), JoinReasons(errs...)
}

// mount is the mount of w.
func (w *WorkspaceRequest) mount() Mount {
	if w.Clone() {
		return Mount{Source: ObjectsDir(w.Dir), Target: CloneObjects, Point: CloneObjectsPoint, ReadOnly: true}
	}
	return Mount{Source: w.Dir, Target: w.Point(), Point: WorkspacePoint, ReadOnly: w.Mode == "ro", Cow: w.Cow(), Lower: CowLower, Changes: CowChanges}
}

// Snapshot plans the mount of the directory of a snapshot on one of the sandbox, or refuses it. Empty
// is where it was.
func (a Attachment) Snapshot(from Origin, at string) (*Sandbox, error) {
	at = cmp.Or(at, from.Path)
	m := Attaching(at, len(a.Mounts))
	m.Source, m.From = from.Name, &from
	errs := []error{checkTarget("mount target", at), AtMost(len(a.Mounts)+1, maxMounts, "mounts")}
	refuse := func(remedy, format string, args ...any) {
		errs = append(errs, sbxerr.WithRemedy(sbxerr.Workspace, "runtime.attach", fmt.Errorf(format, args...), remedy))
	}
	const another = "name another directory inside: SNAPSHOT:PATH"
	switch {
	case a.Profile != nil && a.Profile.Unisolated != nil:
		errs = append(errs, NotEnforced("a mount of its own"))
	case !a.Disk:
		refuse("create a sandbox with --disk SIZE", "sandbox %q has no disk for what is written to the files of a snapshot", a.Name)
	}
	for _, have := range a.Spec.Mounts {
		holds := Mount{Target: have.Destination}.Holds(m)
		switch {
		case have.Destination == at:
			refuse(another, "sandbox %q has a mount on %q", a.Name, at)
		case m.Holds(Mount{Target: have.Destination}):
			refuse(another, "sandbox %q has a mount on %q, which would be hidden", a.Name, have.Destination)
		case holds && have.Type == "tmpfs":
			refuse(another, "mount target %q lies in the tmpfs on %q", sbxerr.Clip(at), have.Destination)
		case holds:
			m.Nested = true
		}
	}
	requests := append(slices.Clone(a.Mounts), MountRequest{Type: SnapshotType, Source: from.Name, Target: at, Cow: true})
	return &Sandbox{Mounts: []Mount{m}, MountRequests: requests}, JoinReasons(errs...)
}

// Attaching is the mount of a snapshot on target that a live sandbox gets beside others; empty is that
// of a workspace.
func Attaching(target string, others int) Mount {
	if target == "" {
		return (&WorkspaceRequest{Mode: modeCow}).mount()
	}
	return Mount{Snapshot: true, Target: target, Point: bindPoint(others), Cow: true, Lower: cacheLower(others), Changes: cacheChanges(others)}
}

// Attached returns spec with the mount m of a live sandbox below state on target, in the place of
// what is there. With nil it takes that back, to a sandbox with a disk or without.
func Attached(spec *specs.Spec, target string, m *Mount, state string, disk bool) *specs.Spec {
	out := *spec
	out.Mounts = slices.DeleteFunc(slices.Clone(spec.Mounts), func(m specs.Mount) bool { return m.Destination == target })
	switch {
	case m != nil:
		out.Mounts = append(out.Mounts, oci.CallerBind(target, filepath.Join(state, m.Point), m.ReadOnly))
	case disk && target == WorkspacePath:
		out.Mounts = append(out.Mounts, oci.CallerBind(WorkspacePath, filepath.Join(state, DiskPoint, DiskWorkspace), false))
	}
	return &out
}
