package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var (
	errEnded     = errors.New("the process has ended")
	errNotMember = errors.New("the process is not one of the sandbox's")
)

// HostPID returns the id on the host of the process of g, or of a group below it,
// that has the id inside in the sandbox's pid namespace. None is sbxerr.NotFound.
//
// It reads the status of each process (proc(5), NSpid), so its cost grows with
// their number. The id may be reused as soon as the process has ended and was
// reaped: take a pidfd and ask again, or let Child.Add check.
func HostPID(g *Group, inside int) (int, error) {
	const op = "cgroups.hostpid"
	if inside <= 0 {
		return 0, sbxerr.New(sbxerr.Internal, op, "find process %d of %q: no such id is possible", inside, g.path)
	}
	pids, err := g.mainProcs()
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Cgroup, op, err)
	}
	for _, pid := range slices.Backward(pids) { // mostly one that has just begun
		if nsPID(pid) == inside {
			return pid, nil
		}
	}
	return 0, sbxerr.New(sbxerr.NotFound, op, "find process %d of %q: none of its %d processes has that id", inside, g.path, len(pids))
}

// mainProcs is Procs of the hierarchy in which every process of a sandbox is.
func (g *Group) mainProcs() ([]int, error) {
	pids, err := procs(g.dir("memory"), maxDepth)
	slices.Sort(pids)
	return pids, err
}

// nsPID returns the pid of a process in the pid namespace right below ours, or 0 if it has
// ended or is in ours. A process in a deeper namespace has a third pid, which is ignored.
func nsPID(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return parseNSPID(string(status))
}

func parseNSPID(status string) int {
	for line := range strings.Lines(status) {
		list, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		if ids := strings.Fields(list); len(ids) >= 2 {
			n, err := strconv.Atoi(ids[1])
			if err == nil && n > 0 {
				return n
			}
		}
		return 0
	}
	return 0
}

// holds returns the directories in which the process pid is, one for each
// hierarchy that a child has. All must be the group's own or below it: nothing but
// a process of the sandbox is ever moved.
func (g *Group) holds(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, errors.Join(errNotMember, err)
	}
	var from []string
	limited := 0
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("%w: cgroup line %q has no three parts", errNotMember, line)
		}
		mount, isLimit := g.hierarchyOf(parts[1])
		if mount == "" {
			continue
		}
		// Runtimes may leave a process in the daemon's group of hybrid's cgroup2.
		if inside := parts[2] == g.path || strings.HasPrefix(parts[2], g.path+"/"); !inside && isLimit {
			return nil, fmt.Errorf("%w: it is in %q", errNotMember, parts[2])
		}
		if isLimit {
			limited++
		}
		from = append(from, filepath.Join(mount, parts[2]))
	}
	if limited == 0 {
		return nil, fmt.Errorf("%w: it has no cgroup", errNotMember)
	}
	return from, nil
}

// hierarchyOf returns where the hierarchy of a line of /proc/PID/cgroup is mounted,
// "" if a child has no group in it, and whether limits are in force there.
func (g *Group) hierarchyOf(controllers string) (mount string, isLimit bool) {
	if controllers == "" {
		return g.host.Unified, g.host.Mode == V2
	}
	if g.host.Mode == V2 {
		return "", false
	}
	for name := range strings.SplitSeq(controllers, ",") {
		if slices.Contains(childControllers, name) {
			return g.host.mount(name), true
		}
	}
	return "", false
}

func openPID(pid int) (int, error) {
	if pid <= 0 {
		return -1, errEnded
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, errEnded
	}
	return fd, err
}

func closeFD(fd int) { _ = unix.Close(fd) } // a pidfd has nothing to write back

// stillRuns asks by pidfd, which never means another process.
func stillRuns(fd int) error {
	err := unix.PidfdSendSignal(fd, 0, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return errEnded
	}
	return err
}

// moveCode tells a process that ended meanwhile from a group that failed.
func moveCode(err error) sbxerr.Code {
	if errors.Is(err, unix.ESRCH) {
		return sbxerr.State
	}
	return sbxerr.Cgroup
}
