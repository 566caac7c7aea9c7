package plan

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// modeClone is the mode of a workspace that is a git clone of the host's repository.
const modeClone = "clone"

// Where the host's repository is inside, read-only: its objects as long as the sandbox lives, and
// all of it while the clone is made.
const (
	CloneObjects = "/var/lib/caisson-clone/objects"
	CloneSource  = "/var/lib/caisson-clone/source"
)

// Where they are attached on the host, below the sandbox's directory.
var (
	CloneObjectsPoint = filepath.Join(MountsDir, "objects")
	CloneSourcePoint  = filepath.Join(MountsDir, "source")
)

// ObjectsDir is the directory of a repository's objects.
func ObjectsDir(repository string) string { return filepath.Join(repository, ".git", "objects") }

// Clone reports whether w is a git clone. No workspace is not.
func (w *WorkspaceRequest) Clone() bool { return w != nil && w.Mode == modeClone }

// kind is what w is in words.
func (w *WorkspaceRequest) kind() string {
	if w.Clone() {
		return "a git clone"
	}
	return "copy-on-write"
}

// OnDisk reports whether the sandbox's disk has what is written to w, and MountsDir the host's part.
func (w *WorkspaceRequest) OnDisk() bool { return w.Cow() || w.Clone() }

// planClone plans the workspace w, which is on the disk, where nothing else is mounted. inside
// says that the request comes from inside of a sandbox.
func (p *Sandbox) planClone(inside bool, r CreateRequest) error {
	const op = "runtime.plan"
	w := r.Workspace
	if !w.Clone() {
		return nil
	}
	p.points = append(p.points, CloneSource[1:])
	refuse := func(remedy, format string, args ...any) error {
		return sbxerr.WithRemedy(sbxerr.CloneSource, op, fmt.Errorf(format, args...), remedy)
	}
	switch {
	case w.Point() != WorkspacePath:
		return refuse("leave the path out, or take --workspace DIR:PATH:cow", "workspace path %q: a clone is at %s", sbxerr.Clip(w.Path), WorkspacePath)
	case slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Target == WorkspacePath }):
		return Invalid("two mounts have the target %q", WorkspacePath)
	case inside:
		return refuse("take --workspace DIR:cow", "a sandbox inside of another one has no clone")
	case r.From != "":
		return refuse("leave the snapshot out, or take --workspace DIR:cow", "a clone is made in an empty directory, and snapshot %q has files", sbxerr.Clip(r.From))
	}
	return nil
}

// CheckSnapshot refuses a snapshot of the sandbox of that name: it would be of use with the host's
// directory as it is now only.
func (w *WorkspaceRequest) CheckSnapshot(op, name string) error {
	switch {
	case w.Cow():
		return sbxerr.New(sbxerr.SnapshotWorkspace, op, "sandbox %q has a copy-on-write workspace, whose changes belong to %q as it is now", name, w.Dir)
	case w.Clone():
		return sbxerr.WithRemedy(sbxerr.SnapshotWorkspace, op, fmt.Errorf("sandbox %q has a git clone, whose objects are those of %q", name, sbxerr.Clip(w.Dir)),
			"keep what was committed: git push, or git format-patch and caisson cp")
	}
	return nil
}
