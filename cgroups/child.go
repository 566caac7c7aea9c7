package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// childControllers are those in whose hierarchies a child has a group of its own
// on v1. In the others its processes stay in the sandbox's: its devices and huge
// pages are the sandbox's, and each hierarchy more costs a migration.
var childControllers = []string{"memory", "cpu", "cpuacct", "pids", "freezer"}

// Child is the cgroup of one command inside of a sandbox's. Like a Group it is a
// name and holds nothing.
//
// Whatever a process of it starts is in it too, for good: nobody in a sandbox has a
// cgroup mount. So Kill ends a command with all that it left behind.
type Child struct {
	parent *Group
	own    *Group // at the path of the child; Procs, Kill and the rest go by paths only
}

// Child names the group of one command, without touching it. The name must not be
// InitChild, in which PID 1 lives on v2.
func (g *Group) Child(name string) (*Child, error) {
	if !nameRule.MatchString(name) || name == InitChild {
		return nil, sbxerr.New(sbxerr.Internal, "cgroups.child", "name cgroup %q of %q: want lower-case letters, digits, - and _, other than %q", name, g.path, InitChild)
	}
	return &Child{parent: g, own: &Group{host: g.host, path: g.path + "/" + name}}, nil
}

// Children returns the names of the children that there are, sorted. PID 1's leaf
// and tags are none of them.
func (g *Group) Children() ([]string, error) {
	var names []string
	var errs []error
	for _, dir := range g.dirs() {
		found, err := subdirs(dir)
		names = append(names, found...)
		errs = append(errs, err)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return name == InitChild || strings.HasPrefix(name, tagPrefix)
	})
	return names, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.children", errors.Join(errs...))
}

// NewChild makes the group of one command with l in force, and nothing in it. A
// limit above the sandbox's own is refused (sbxerr.Limits), as it could not hold; a
// name that is taken is sbxerr.Exists. On v2 the group must have been delegated. On
// an error nothing is left.
func (g *Group) NewChild(name string, l ChildLimits) (_ *Child, err error) {
	const op = "cgroups.child"
	c, err := g.Child(name)
	if err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := g.admits(l); err != nil {
		return nil, err
	}
	if g.host.Mode == V2 && !delegatedAt(g.unified()) {
		return nil, sbxerr.New(sbxerr.Internal, op, "make cgroup %q: its parent hands no controllers down", c.own.path)
	}
	made, err := makeDirs(c.newDirs())
	if err == nil {
		err = c.write(l)
	}
	if err == nil {
		return c, nil
	}
	code := sbxerr.Cgroup
	if errors.Is(err, fs.ErrExist) {
		code = sbxerr.Exists
	}
	err = fmt.Errorf("make cgroup %q: %w", c.own.path, err)
	return nil, sbxerr.Wrap(code, op, errors.Join(err, removeDirs(context.Background(), made)))
}

// Name returns the name given to NewChild.
func (c *Child) Name() string { return filepath.Base(c.own.path) }

// Path returns the path below the root of each hierarchy.
func (c *Child) Path() string { return c.own.path }

// newDirs are the directories that make the child. On hybrid hosts the cgroup2
// hierarchy is among them, for cgroup.kill; runtimes may not have made the
// sandbox's group there, so that comes first.
func (c *Child) newDirs() []string {
	if c.own.host.Mode == V2 {
		return []string{c.own.unified()}
	}
	var dirs []string
	for _, name := range childControllers {
		if dir := c.own.dir(name); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if c.own.host.Unified != "" {
		dirs = append(dirs, c.own.unified())
	}
	return dirs
}

// makeDirs makes dirs and returns those that it made, also on an error.
func makeDirs(dirs []string) (made []string, err error) {
	for i, dir := range dirs {
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			// The sandbox is there, as the directory before showed, but not in this
			// hierarchy, which has no limits: hybrid's cgroup2.
			err = errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.Mkdir(dir, 0o755))
		}
		if err != nil {
			return made, err
		}
		made = append(made, dir)
	}
	return made, nil
}

func (c *Child) write(l ChildLimits) error {
	for _, f := range l.files(c.own.host) {
		if err := writeFile(c.own.dir(f.Controller), f.Name, f.Value); err != nil {
			return fmt.Errorf("write %q to %s: %w", f.Value, f.Name, err)
		}
	}
	return nil
}

// Add moves the process pid, as the daemon sees it, with all its threads into the
// child. It must be one of the sandbox's, else it is refused (sbxerr.Internal); one
// that has ended is sbxerr.State. On an error it is where it was.
//
// On v1 each hierarchy is one migration; see Child.newDirs.
func (c *Child) Add(pid int) error {
	const op = "cgroups.add"
	fd, err := openPID(pid)
	if err != nil {
		return sbxerr.Wrap(sbxerr.State, op, fmt.Errorf("add process %d to %q: %w", pid, c.own.path, err))
	}
	defer closeFD(fd)
	from, err := c.parent.holds(pid)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, fmt.Errorf("add process %d to %q: %w", pid, c.own.path, err))
	}
	if err := moveAll(pid, c.newDirs()); err != nil {
		err = fmt.Errorf("add process %d to %q: %w", pid, c.own.path, err)
		return sbxerr.Wrap(moveCode(err), op, errors.Join(err, undoMove(pid, from)))
	}
	// While the pidfd shows it alive, pid meant this process throughout.
	if err := stillRuns(fd); err != nil {
		return sbxerr.Wrap(sbxerr.State, op, fmt.Errorf("add process %d to %q: %w", pid, c.own.path, err))
	}
	return nil
}

func moveAll(pid int, dirs []string) error {
	for _, dir := range dirs {
		if err := writeFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// undoMove puts pid back. One that has ended is nowhere.
func undoMove(pid int, from []string) error {
	if err := moveAll(pid, from); err != nil && moveCode(err) != sbxerr.State {
		return fmt.Errorf("put process %d back: %w", pid, err)
	}
	return nil
}

// Procs returns the ids of all processes in the child, sorted.
func (c *Child) Procs() ([]int, error) { return c.own.Procs() }

// Signal sends sig to every process of the child, and returns how many got it. One that is
// born meanwhile may not get it.
func (c *Child) Signal(sig unix.Signal) (int, error) {
	n, err := c.own.signalAll(sig, 0)
	return n, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.signal", err)
}

// Kill ends every process of the child, as Group.Kill does, and returns when none
// is left. On v1 a frozen sandbox keeps its killed processes until it is thawed. Kill
// then does not wait and returns sbxerr.State.
func (c *Child) Kill(ctx context.Context) error {
	if !c.parent.keepsKilled() {
		return c.own.Kill(ctx)
	}
	pids, err := c.own.Procs()
	if err != nil || len(pids) == 0 {
		return err
	}
	if err := c.own.killAll(0); err != nil {
		return sbxerr.Wrap(sbxerr.Cgroup, "cgroups.kill", err)
	}
	return sbxerr.New(sbxerr.State, "cgroups.kill", "end %v of %q: the sandbox is frozen; they end when it is thawed", pids, c.own.path)
}

// Stats reads the usage of the command so far. v1 does not count I/O separately.
func (c *Child) Stats() (Stats, error) { return c.own.Stats() }

// Events counts how often a limit of the command or of the sandbox hit the command.
func (c *Child) Events() (Events, error) { return c.own.Events() }

// Remove removes the child, which must have been killed, as Group.Remove does.
// Absent is success. Read Events before: on v1 the sandbox's own no longer have
// them afterwards.
func (c *Child) Remove(ctx context.Context) error { return c.own.Remove(ctx) }

// admits compares l with the limits in force for the sandbox.
func (g *Group) admits(l ChildLimits) error {
	const op = "cgroups.child"
	var errs []error
	for _, f := range l.list() {
		live, err := g.limit(f.Name)
		if err != nil {
			return sbxerr.Wrap(sbxerr.Cgroup, op, err)
		}
		if f.value > live {
			errs = append(errs, fmt.Errorf("limit %q of a command is %d, above the sandbox's own of %d", f.Name, f.value, live))
		}
	}
	return sbxerr.Wrap(sbxerr.Limits, op, errors.Join(errs...))
}

// limit reads the limit of that name that is in force, in the unit of Limits.
func (g *Group) limit(name string) (int64, error) {
	v2 := g.host.Mode == V2
	switch {
	case name == "pids":
		return readInt(g.dir("pids"), "pids.max")
	case name == "memory" && v2:
		return readInt(g.dir("memory"), "memory.max")
	case name == "memory":
		return readInt(g.dir("memory"), "memory.limit_in_bytes")
	case v2:
		s, err := readString(g.dir("cpu"), "cpu.max")
		if err != nil {
			return 0, err
		}
		quota, _, _ := strings.Cut(s, " ")
		n, err := parseInt(g.dir("cpu"), "cpu.max", quota)
		return n / (cpuPeriod / 1000), err
	}
	return readQuota(g.dir("cpu"))
}

// readQuota reads v1's quota in thousandths of a CPU, which is -1 for none.
func readQuota(dir string) (int64, error) {
	const file = "cpu.cfs_quota_us"
	s, err := readString(dir, file)
	if err != nil {
		return 0, err
	}
	if s == "-1" {
		s = "max"
	}
	n, err := parseInt(dir, file, s)
	return n / (cpuPeriod / 1000), err
}
