package ctrd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	remainsTries = 20 // at a shim that is busy, which it is for as long as runc runs
	remainsPause = 100 * time.Millisecond
)

// deleteRemains removes what is left of a container that containerd has lost sight
// of: one that it was making when it was killed. Its shim may be running without
// containerd knowing its socket, with runc at work below it.
func (e *Engine) deleteRemains(ctx context.Context, id string) error {
	for try := range remainsTries {
		if try > 0 && !sleep(ctx, remainsPause) {
			return context.Cause(ctx)
		}
		if err := e.runcDelete(ctx, id); err != nil {
			return err
		}
		busy, err := e.endShims(id)
		if err != nil || !busy {
			return err
		}
	}
	return nil // the shim serves other containers of its group
}

// runcDelete makes runc remove what it knows of id.
func (e *Engine) runcDelete(ctx context.Context, id string) error {
	root := filepath.Join(e.cfg.RuncRoot, e.cfg.Namespace)
	if _, err := os.Lstat(filepath.Join(root, id)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	cmd := exec.CommandContext(ctx, e.cfg.Runc, "--root", root, "delete", "--force", id)
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run runc delete: %w: %.500q", err, out)
	}
	return nil
}

// endShims kills the shims that were started for id and have no children, and
// reports whether there are some that do. A shim without children holds nothing:
// its containers have ended.
func (e *Engine) endShims(id string) (busy bool, err error) {
	pids, err := processes(func(pid int) bool { return e.isShim(pid, id) })
	if err != nil {
		return false, err
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("open shim %d: %w", pid, err)
		}
		if !e.isShim(pid, id) || hasChildren(pid) { // looked at again: the pid is pinned now
			busy = true
		} else if err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); errors.Is(err, unix.ESRCH) {
			err = nil
		}
		unix.Close(fd)
		if err != nil {
			return false, fmt.Errorf("kill shim %d: %w", pid, err)
		}
	}
	return busy, nil
}

// isShim says whether pid is the shim that our server started for id.
func (e *Engine) isShim(pid int, id string) bool {
	want := fmt.Sprintf("\x00-namespace\x00%s\x00-id\x00%s\x00-address\x00%s\x00", e.cfg.Namespace, id, e.cfg.Address)
	return program(pid) == "containerd-shim-runc-v2" && bytes.Contains(arguments(pid), []byte(want))
}
