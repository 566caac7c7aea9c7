package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// ownTrees are those that a sandbox brings itself: links of an image that lead there, and
// the files of the sandbox, stay what they are.
var ownTrees = strings.Fields("bin boot dev etc lib lib32 lib64 libx32 proc run sbin sys usr")

// ownPoints are mount points of every sandbox; a workspace may lie below them.
var ownPoints = []string{"/", "/home", "/tmp", "/var", "/var/tmp"}

func (p *Sandbox) planWorkspace(allowed mount.Allowed, r CreateRequest) error {
	if r.Workspace == nil {
		return nil
	}
	p.ReadOnly = r.Workspace.Mode == "ro"
	return errors.Join(allowed.Check(r.Workspace.Dir), checkWorkspaceMode(r.Workspace.Mode), checkWorkspacePath(r.Workspace.Point()))
}

// MountPoints are the directories that only this sandbox needs as mount points, below its root.
func (p *Sandbox) MountPoints() []string {
	if p.Request.Workspace == nil || p.Request.Workspace.Point() == WorkspacePath {
		return nil
	}
	return []string{p.Request.Workspace.Point()[1:]}
}

func checkWorkspaceMode(mode string) error {
	switch mode {
	case "", "rw", "ro":
		return nil
	case "cow", "clone":
		return sbxerr.New(sbxerr.Workspace, "runtime.plan", "workspace mode %q is not offered yet: use rw or ro", mode)
	}
	return sbxerr.New(sbxerr.Workspace, "runtime.plan", "workspace mode %q is none of rw, ro", sbxerr.Clip(mode))
}

func checkWorkspacePath(name string) error {
	const remedy = "name another path inside, such as /workspace or that of the directory on the host"
	refuse := func(format string, args ...any) error {
		return sbxerr.WithRemedy(sbxerr.Workspace, "runtime.plan", fmt.Errorf(format, args...), remedy)
	}
	if !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) || len(name) >= unix.PathMax {
		return refuse("workspace path %q is not a clean absolute path", sbxerr.Clip(name))
	}
	if slices.Contains(ownPoints, name) || name == homePath || strings.HasPrefix(name, homePath+"/") {
		return refuse("workspace path %q is the sandbox's own", name)
	}
	if first, _, _ := strings.Cut(name[1:], "/"); slices.Contains(ownTrees, first) || name == "/var/run" || strings.HasPrefix(name, "/var/run/") {
		return refuse("workspace path %q is part of the sandbox's own /%s", sbxerr.Clip(name), first)
	}
	return nil
}
