package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxDepth bounds how far below a group its children are followed. A sandbox
// has no cgroup mount, so there should be none at all.
const maxDepth = 8

// nameRule is the form of a path component. It cannot climb, hide, or name a controller's
// file.
var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Group names the cgroup of one sandbox in all hierarchies. It may or may not
// exist.
type Group struct {
	host Host
	path string // "/parent/id"
}

// Open names the group at path, "/<parent>/<id>", without touching it. Any
// other form of path is refused, so that no operation of a Group can reach
// anything outside the parent.
func Open(h Host, path string) (*Group, error) {
	const op = "cgroups.open"
	rest, absolute := strings.CutPrefix(path, "/")
	parent, id, two := strings.Cut(rest, "/")
	if !absolute || !two || !nameRule.MatchString(parent) || !nameRule.MatchString(id) {
		return nil, sbxerr.New(sbxerr.Internal, op, "name cgroup %q: want /<parent>/<id> in lower-case letters, digits, - and _", path)
	}
	if len(h.mounts()) == 0 {
		return nil, sbxerr.New(sbxerr.Internal, op, "name cgroup %q: the host was not detected", path)
	}
	return &Group{host: h, path: path}, nil
}

// Path returns the path below the root of each hierarchy.
func (g *Group) Path() string { return g.path }

// dirs returns the group's directory in every hierarchy.
func (g *Group) dirs() []string {
	var dirs []string
	for _, m := range g.host.mounts() {
		dirs = append(dirs, filepath.Join(m, g.path))
	}
	return dirs
}

// dir returns the group's directory that holds controller's files, or "" when
// the host has none, which readString and writeFile refuse.
func (g *Group) dir(controller string) string {
	mount := g.host.mount(controller)
	if mount == "" {
		return ""
	}
	return filepath.Join(mount, g.path)
}

// unified returns the group's directory in the cgroup2 hierarchy, or "".
func (g *Group) unified() string {
	if g.host.Unified == "" {
		return ""
	}
	return filepath.Join(g.host.Unified, g.path)
}

// UnifiedDir returns the group's directory in the cgroup2 hierarchy, where BPF programs
// find it, or "" on a host without one.
func (g *Group) UnifiedDir() string { return g.unified() }

// Exists reports whether the group is there in any hierarchy.
func (g *Group) Exists() bool {
	return slices.ContainsFunc(g.dirs(), func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	})
}

// Procs returns the ids of all processes in the group and below it, in any
// hierarchy, sorted. A group that is not there has none.
func (g *Group) Procs() ([]int, error) {
	var pids []int
	var errs []error
	for _, dir := range g.dirs() {
		found, err := procs(dir, maxDepth)
		if errors.Is(err, unix.EOPNOTSUPP) {
			found, err = threadedProcs(dir)
		}
		pids = append(pids, found...)
		errs = append(errs, err)
	}
	slices.Sort(pids)
	return slices.Compact(pids), sbxerr.Wrap(sbxerr.Cgroup, "cgroups.procs", errors.Join(errs...))
}

// Processes counts the processes of the group and below it, as Procs of the hierarchy in
// which every process of a sandbox is. Usage.PIDs counts their threads too.
func (g *Group) Processes() (int64, error) {
	pids, err := g.mainProcs()
	return int64(len(slices.Compact(pids))), sbxerr.Wrap(sbxerr.Cgroup, "cgroups.processes", err)
}

// threadedProcs returns the processes of a threaded group, which names their threads only.
func threadedProcs(dir string) ([]int, error) {
	s, err := readString(dir, "cgroup.threads")
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, tid := range strings.Fields(s) {
		status, err := os.ReadFile("/proc/" + tid + "/status")
		if err != nil { // it has ended
			continue
		}
		_, rest, _ := strings.Cut(string(status), "\nTgid:\t")
		pid, _, _ := strings.Cut(rest, "\n")
		if n, err := strconv.Atoi(pid); err == nil && n > 0 {
			pids = append(pids, n)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func procs(dir string, depth int) ([]int, error) {
	s, err := readString(dir, "cgroup.procs")
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(s) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 {
			// 0 is a process of another pid namespace: it cannot be named, and
			// signalling 0 would hit ourselves.
			continue
		}
		pids = append(pids, pid)
	}
	children, err := subdirs(dir)
	if err != nil || depth == 0 {
		return pids, err
	}
	for _, child := range children {
		below, err := procs(filepath.Join(dir, child), depth-1)
		if errors.Is(err, unix.EOPNOTSUPP) { // a tag, whose processes the group above it has named
			continue
		}
		if err != nil {
			return pids, err
		}
		pids = append(pids, below...)
	}
	return pids, nil
}

// subdirs returns the names of the groups in dir, none if dir is gone.
func subdirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// gone reports whether err says that a group was removed, before or while it
// was read (the kernel answers ENODEV to a file that was opened in time).
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDevice)
}
