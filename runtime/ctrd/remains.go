package ctrd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/pkg/identifiers"

	"github.com/caisson-run/caisson/owndir"
)

const (
	remainsTries = 20 // at a shim that is busy, which it is for as long as runc runs
	remainsPause = 100 * time.Millisecond
	settleTries  = 2 // after which a shim that was told to make a container has begun to
)

// deleteRemains removes what is left of a container that containerd has lost sight
// of: one that it was making when it was killed. Its shim may be running without
// containerd knowing its socket, with runc at work below it. A shim that serves
// others of the same group goes on.
func (e *Engine) deleteRemains(ctx context.Context, id, group string) error {
	for try := range remainsTries {
		if try > 0 && !sleep(ctx, remainsPause) {
			return context.Cause(ctx)
		}
		if err := e.runcDelete(ctx, id); err != nil {
			return err
		}
		running, err := e.runcWorks(id)
		if err != nil {
			return err
		}
		orphans, err := e.endOrphans(ctx)
		if err != nil {
			return err
		}
		unsettled := false
		if group != "" {
			// A shared shim that lives may be about to run runc, and will remember it.
			if unsettled, err = e.serves(e.socketName(group)); err != nil {
				return err
			}
			if unsettled {
				e.taint(e.socketName(group))
			}
		}
		if !running && !orphans[id] && (!unsettled || try >= settleTries) {
			return e.dropRemains(id, group, unsettled)
		}
	}
	return nil // something else keeps its shim busy
}

// dropRemains removes what no process holds of a container that is gone: its own
// shim's socket, and its bundle. Unsettled is a shim of its group that may have served
// it.
func (e *Engine) dropRemains(id, group string, unsettled bool) error {
	if group == "" {
		e.dropSocket(e.socketName(id))
	}
	if unsettled {
		// One that serves none of the others may never serve any; see awaitShimEnd.
		if err := e.endIdle(e.socketName(group), e.gate.ifIdle); err != nil {
			return err
		}
	}
	return e.dropBundle(id)
}

// dropBundle removes the bundle of a container that is gone. The server removes it
// itself once its shim program has seen to what a dead shim left. It calls that only
// when the shim dies and when it starts: a call that fails leaves the bundle.
func (e *Engine) dropBundle(id string) error {
	if identifiers.Validate(id) != nil {
		return nil // no container was ever called so
	}
	var errs []error
	for _, dir := range e.cfg.Bundles {
		bundle := filepath.Join(dir, e.cfg.Namespace, id)
		// It is empty, as roots are elsewhere; one that is not is not entered.
		err := owndir.Remove(filepath.Join(bundle, "rootfs"))
		if err == nil {
			err = owndir.RemoveTree(bundle)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// taint notes that the shim with that socket may remember a container that is gone,
// and so will not end with the last of the others.
func (e *Engine) taint(socket string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tainted[socket] = true
}

// endTainted ends the tainted shims that have lost their last container.
func (e *Engine) endTainted(ctx context.Context) error {
	e.mu.Lock()
	tainted := slices.Collect(maps.Keys(e.tainted))
	e.mu.Unlock()
	if len(tainted) == 0 {
		return nil
	}
	if _, err := e.endOrphans(ctx); err != nil {
		return err
	}
	for _, socket := range tainted {
		if err := e.gate.ifIdle([]string{socket}, func() error { return e.clear(socket) }); err != nil {
			return err
		}
	}
	return nil
}

// clear forgets a tainted shim that has ended. None is being started in its place.
func (e *Engine) clear(socket string) error {
	serves, err := e.serves(socket)
	if err != nil || serves {
		return err
	}
	e.dropSocket(socket)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.tainted, socket)
	return nil
}

// runcDelete makes runc remove what it knows of id.
func (e *Engine) runcDelete(ctx context.Context, id string) error {
	root := filepath.Join(e.cfg.RuncRoot, e.cfg.Namespace)
	if _, err := os.Lstat(filepath.Join(root, id)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if dropped, err := e.dropGarbled(id); err != nil || dropped {
		return err
	}
	cmd := exec.CommandContext(ctx, e.cfg.Runc, "--root", root, "delete", "--force", id)
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run runc delete: %w: %.500q", err, out)
	}
	return nil
}

// maxRuncState bounds what is read of runc's state, in bytes. It is a few KiB.
const maxRuncState = 16 << 20

// dropGarbled removes runc's state of id where runc cannot read it, and says whether it
// did. Nothing else is known from that state: the sandbox's cgroup and its directories
// derive from the ID. Without a state file runc removes the directory by itself.
func (e *Engine) dropGarbled(id string) (dropped bool, err error) {
	dir := filepath.Join(e.cfg.RuncRoot, e.cfg.Namespace, id)
	data, err := owndir.ReadFile(filepath.Join(dir, "state.json"), maxRuncState)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	var state struct {
		ID string `json:"id"`
	}
	if err == nil && json.Unmarshal(data, &state) == nil && state.ID == id {
		return false, nil
	}
	return true, owndir.RemoveTree(dir)
}

// runcWorks says whether a runc is at work on id.
func (e *Engine) runcWorks(id string) (bool, error) {
	root := filepath.Join(e.cfg.RuncRoot, e.cfg.Namespace)
	pids, err := processes(func(pid int) bool {
		if program(pid) != filepath.Base(e.cfg.Runc) {
			return false
		}
		args := arguments(pid)
		return bytes.Contains(args, []byte("\x00"+root+"\x00")) && bytes.Contains(args, []byte("\x00"+id+"\x00"))
	})
	return len(pids) > 0, err
}
