package plan

import (
	"fmt"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// modeCow is the mode of a workspace that the sandbox can write to while the directory of the
// host stays as it is.
const modeCow = "cow"

// Where the parts of a copy-on-write workspace are on the host, below the sandbox's directory:
// the directory of the host, and the directory of the disk with what was changed.
var (
	CowLower   = filepath.Join(MountsDir, "lower")
	CowChanges = filepath.Join(DiskPoint, "changes")
)

// Cow reports whether w is copy-on-write. No workspace is not.
func (w *WorkspaceRequest) Cow() bool { return w != nil && w.Mode == modeCow }

// CheckCow refuses the sandbox of that name where w is not copy-on-write.
func (w *WorkspaceRequest) CheckCow(name string) error {
	if w.Cow() {
		return nil
	}
	if w.Clone() {
		return sbxerr.WithRemedy(sbxerr.Workspace, "runtime.diff", fmt.Errorf("sandbox %q has a git clone, of which git knows what changed", name),
			"use git inside: git diff, git format-patch, git push")
	}
	return sbxerr.WithRemedy(sbxerr.Workspace, "runtime.diff", fmt.Errorf("sandbox %q has no copy-on-write workspace", name), "create it with --workspace DIR:cow")
}
