package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// InitChild is the leaf in which PID 1 of a delegated sandbox lives on v2.
const InitChild = "init"

// childrenGet are the controllers that v2's groups of commands need.
var childrenGet = []string{"memory", "cpu", "pids"}

// Delegate makes g ready for children: on v2 a group that hands controllers down
// may hold no process itself (cgroups(7), "no internal processes"), so PID 1, whose
// id on the host is pid, moves into the leaf InitChild. Limits, the device program
// and the root of the sandbox's cgroup namespace stay where they are. Call it when
// the OCI runtime has made the container and before PID 1 runs anything; a process
// that is in g besides PID 1 makes it fail. It is idempotent, and does nothing on v1
// and hybrid.
func (g *Group) Delegate(pid int) error {
	if g.host.Mode != V2 {
		return nil
	}
	const op = "cgroups.delegate"
	fd, err := openPID(pid)
	if err != nil {
		return sbxerr.Wrap(sbxerr.State, op, fmt.Errorf("delegate %q to process %d: %w", g.path, pid, err))
	}
	defer closeFD(fd)
	if _, err := g.holds(pid); err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, fmt.Errorf("delegate %q to process %d: %w", g.path, pid, err))
	}
	if err := g.delegate(pid); err != nil {
		return sbxerr.Wrap(moveCode(err), op, fmt.Errorf("delegate %q to process %d: %w", g.path, pid, err))
	}
	if err := stillRuns(fd); err != nil {
		return sbxerr.Wrap(sbxerr.State, op, fmt.Errorf("delegate %q to process %d: %w", g.path, pid, err))
	}
	return nil
}

func (g *Group) delegate(pid int) error {
	leaf := filepath.Join(g.unified(), InitChild)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := writeFile(leaf, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return err
	}
	return writeFile(g.unified(), "cgroup.subtree_control", "+"+strings.Join(childrenGet, " +"))
}

// delegatedAt reports whether dir delegates the controllers that children need.
func delegatedAt(dir string) bool {
	list, err := readString(dir, "cgroup.subtree_control")
	enabled := strings.Fields(list)
	return err == nil && !slices.ContainsFunc(childrenGet, func(name string) bool { return !slices.Contains(enabled, name) })
}
