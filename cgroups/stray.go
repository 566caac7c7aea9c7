package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// KillStray ends the processes in the group of a sandbox that is to be removed. PID 1 and
// all that it started have ended by then, unless a record or the engine's state is lost.
// Daemons may share the group above: only processes with host ids that own holds, which
// no other daemon hands out, are a sandbox's of this one.
func (g *Group) KillStray(ctx context.Context, own func(uid uint32) bool) error {
	const op = "cgroups.stray"
	pids, err := g.Procs()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		uid, err := uidOf(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) { // it has ended
			continue
		}
		if err != nil {
			return sbxerr.Wrap(sbxerr.Cgroup, op, err)
		}
		if !own(uid) {
			return sbxerr.New(sbxerr.Cgroup, op, "process %d in cgroup %q runs as uid %d, which is no sandbox's of this daemon: it is left alone", pid, g.Path(), uid)
		}
	}
	return g.Kill(ctx)
}

// uidOf is the real user id of a process, on the host.
func uidOf(pid int) (uid uint32, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, ids, found := strings.Cut(string(status), "\nUid:\t")
	if !found {
		return 0, fmt.Errorf("no uid of process %d in its status", pid)
	}
	_, err = fmt.Sscan(ids, &uid)
	return uid, err
}
