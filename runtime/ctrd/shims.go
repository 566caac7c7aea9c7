package ctrd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/ctrd/shimcall"
)

// shim is a running shim of our server and namespace.
type shim struct {
	pid int
	id  string // of the container that it was started for, which may be long gone
}

// shims lists them, without those that only start or clean up and end by themselves:
// their arguments have another order.
func (e *Engine) shims() ([]shim, error) {
	var found []shim
	_, err := processes(func(pid int) bool {
		id, ok := e.shimOf(pid)
		if ok {
			found = append(found, shim{pid, id})
		}
		return ok
	})
	return found, err
}

// shimOf returns for which container pid was started, if it is a shim of ours.
func (e *Engine) shimOf(pid int) (id string, ok bool) {
	if program(pid) != shimcall.Program {
		return "", false
	}
	_, rest, ok := bytes.Cut(arguments(pid), []byte("\x00-namespace\x00"+e.cfg.Namespace+"\x00-id\x00"))
	if !ok {
		return "", false
	}
	name, rest, _ := bytes.Cut(rest, []byte{0})
	return string(name), bytes.HasPrefix(rest, []byte("-address\x00"+e.cfg.Address+"\x00"))
}

// socketName is how the socket of a shim is called: by the group of its containers,
// or by the one that it serves.
func (e *Engine) socketName(group string) string {
	return shimcall.SocketName(e.cfg.Address, e.cfg.Namespace, group)
}

// endOrphans kills the shims that serve none of the containers that containerd has,
// and have no children, which therefore hold nothing. It returns the ids for which
// those with children were started: runc is at work there.
func (e *Engine) endOrphans(ctx context.Context) (busy map[string]bool, err error) {
	shims, err := e.shims() // before the containers: what has started by now has a record
	if err != nil || len(shims) == 0 {
		return nil, err
	}
	wanted, err := e.wantedSockets(ctx)
	if err != nil {
		return nil, err
	}
	sockets, err := unixSockets()
	if err != nil {
		return nil, err
	}
	busy = map[string]bool{}
	for _, s := range shims {
		held := heldSockets(s.pid, sockets)
		if slices.ContainsFunc(held, func(name string) bool { return wanted[name] }) {
			continue
		}
		ended, err := e.endShim(s, held, e.gate.ifIdle)
		if err != nil {
			return busy, err
		}
		busy[s.id] = busy[s.id] || !ended
	}
	return busy, nil
}

// socketOf is the socket name of the shim that serves a container.
func (e *Engine) socketOf(record containers.Container) string {
	if group := record.Labels[groupLabel]; group != "" {
		return e.socketName(group)
	}
	return e.socketName(record.ID)
}

// guard does fn if no container is being made in one of shims, and keeps that so.
type guard func(shims []string, fn func() error) error

// alone is the guard of who has a shim for itself.
func alone(_ []string, fn func() error) error { return fn() }

// endIdle kills the shim with that socket unless it has children, as it has while it
// serves a container that lives.
func (e *Engine) endIdle(socket string, guard guard) error {
	shims, err := e.shims()
	if err != nil {
		return err
	}
	sockets, err := unixSockets()
	if err != nil {
		return err
	}
	for _, s := range shims {
		held := heldSockets(s.pid, sockets)
		if !slices.Contains(held, socket) {
			continue
		}
		if _, err := e.endShim(s, held, guard); err != nil {
			return err
		}
	}
	return nil
}

// endShim kills s, which holds the given sockets, unless it has children or is about
// to get some.
func (e *Engine) endShim(s shim, held []string, guard guard) (ended bool, err error) {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("open shim %d: %w", s.pid, err)
	}
	defer unix.Close(fd)
	if id, ok := e.shimOf(s.pid); !ok || id != s.id { // looked at again: the pid is pinned now
		return true, nil
	}
	err = guard(held, func() error {
		if hasChildren(s.pid) {
			return nil
		}
		ended = true
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill shim %d: %w", s.pid, err)
		}
		for _, socket := range held {
			e.dropSocket(socket)
		}
		return nil
	})
	return ended, err
}

// shimEndGrace is how long a shim that was told to end may take.
const shimEndGrace = 3 * time.Second

// awaitShimEnd waits until the socket of a shim that has lost its last container is
// gone: the next shim of that name must not meet it. The caller has the shim for
// itself, and one that stays is ended. It may be one that will never serve, as it waits
// for containerd to read its log, and that takes connections all the same.
func (e *Engine) awaitShimEnd(ctx context.Context, socket string) {
	ctx, cancel := context.WithTimeout(ctx, shimEndGrace)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, remainsPause) {
		sockets, err := unixSockets()
		if err != nil {
			return
		}
		if !slices.Contains(slices.Collect(maps.Values(sockets)), socket) {
			e.dropSocket(socket)
			return
		}
		if !sleep(ctx, pause) {
			e.taint(socket) // until its end is seen
			_ = e.endIdle(socket, alone)
			return
		}
	}
}

// dropSocket removes the file of a socket that nobody will listen at any more. A shim
// removes its own only if its group is called as the container that it was started
// for (containerd, pkg/shim, cleanupSockets). What stays all the same is removed when
// the server is started next.
func (e *Engine) dropSocket(socket string) {
	if e.cfg.Sockets != "" {
		_ = owndir.Remove(filepath.Join(e.cfg.Sockets, socket)) // absent, mostly: a shim that was alone
	}
}

// adoptShims takes over what an earlier daemon made, and ends what it could not see
// to the end of.
func (e *Engine) adoptShims(ctx context.Context) error {
	list, err := e.client.ContainerService().List(ctx)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.Labels[groupLabel] != "" {
			e.gate.adopt(e.socketOf(c), c.ID)
		}
	}
	_, err = e.endOrphans(ctx)
	return err
}

// wantedSockets are those that containers have.
func (e *Engine) wantedSockets(ctx context.Context) (map[string]bool, error) {
	list, err := e.client.ContainerService().List(ctx)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, c := range list {
		wanted[e.socketOf(c)] = true
	}
	return wanted, nil
}

// serves says whether a shim with that socket runs.
func (e *Engine) serves(socket string) (bool, error) {
	shims, err := e.shims()
	if err != nil || len(shims) == 0 {
		return false, err
	}
	sockets, err := unixSockets()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(shims, func(s shim) bool { return slices.Contains(heldSockets(s.pid, sockets), socket) }), nil
}

// unixSockets maps what readlink shows of a descriptor to the last element of the
// path to which that socket is bound (/proc/net/unix, proc(5)).
func unixSockets() (map[string]string, error) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	return parseUnix(string(data)), nil
}

func parseUnix(text string) map[string]string {
	names := map[string]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 8 {
			names["socket:["+f[6]+"]"] = filepath.Base(f[7])
		}
	}
	return names
}

// heldSockets names the bound sockets that pid has open, none if it has ended.
func heldSockets(pid int, sockets map[string]string) []string {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var held []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if name, bound := sockets[target]; err == nil && bound {
			held = append(held, name)
		}
	}
	return held
}
