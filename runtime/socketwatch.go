package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups/sockmem"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

// sockets adds up what the sockets of sandboxes hold. Package sockmem implements it.
type sockets interface {
	Look(arm bool) (held map[uint64]sockmem.Held, sockets int, err error)
	Worked() (time.Duration, error)
	Wait(context.Context) error
	Close() error
}

// memoryWatch counts kernel memory that no cgroup counts.
type memoryWatch struct {
	opened  chan struct{} // sockets are counted from now on, or cannot be
	failure error         // why not; set before opened
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// StartMemoryWatch counts the kernel memory of sandboxes that no cgroup counts, and ends
// those past a bound, until ctx or the manager ends. No sandbox is made before it counts.
func (m *Manager) StartMemoryWatch(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	w := &memoryWatch{opened: make(chan struct{}), stop: stop}
	m.memory = w
	w.work.Go(func() { m.watchLocks(ctx) })
	w.work.Go(func() {
		counted, err := m.openSockets(ctx)
		w.failure = err
		close(w.opened)
		switch {
		case err == nil:
			m.watchSockets(ctx, counted)
		case ctx.Err() == nil: // else the daemon ends
			m.log.Warn("the memory of sockets is not counted: new sandboxes may not use time stamps, corked datagrams and error queues", "code", sbxerr.Of(err), "err", err)
		}
	})
}

// openSockets counts the sockets of all sandboxes to come, and of those there are. It has
// proved that they are counted.
func (h *host) openSockets(ctx context.Context) (sockets, error) {
	const op = "runtime.sockets"
	if h.groups.Unified == "" {
		return nil, sbxerr.New(sbxerr.SocketMemory, op, "this host has no cgroup2 hierarchy")
	}
	group := filepath.Join(h.groups.Unified, h.opts.CgroupParent)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, sbxerr.Wrap(sbxerr.SocketMemory, op, err)
	}
	if err := mount.AttachBPF(h.paths.bpf()); err != nil {
		return nil, sbxerr.Wrap(sbxerr.SocketMemory, op, err)
	}
	w, err := sockmem.Open(ctx, group, h.paths.bpf())
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.SocketMemory, op, err)
	}
	return w, nil
}

// awaitMemoryWatch returns when sockets are counted, or cannot be.
func (m *Manager) awaitMemoryWatch(ctx context.Context) error {
	if m.memory == nil {
		return nil
	}
	select {
	case <-m.memory.opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

const uncountedWarning = "the memory of sockets is not counted on this host: time stamps, corked datagrams and error queues are refused (SBX-504)"

// uncounted says why the memory of sockets is not counted, nil where it is.
func (w *memoryWatch) uncounted() error {
	if w == nil {
		return nil
	}
	select {
	case <-w.opened:
		return w.failure
	default: // nobody makes a sandbox before
		return nil
	}
}

// checks is what the doctor tells of this daemon. The host may be able to count by now.
func (w *memoryWatch) checks() []Check {
	err := w.uncounted()
	if err == nil {
		return nil
	}
	return []Check{{
		Name: "count of sockets", Status: "warn", Detail: fmt.Sprintf("this daemon does not count the memory of sockets: %v", err),
		Code: string(sbxerr.Of(err)), Remedy: sbxerr.RemedyOf(err),
	}}
}

// refuseUncounted is p, without the sockets' ways to memory where that is not counted.
func (m *Manager) refuseUncounted(p *plan.Sandbox) *plan.Sandbox {
	if m.memory.uncounted() == nil {
		return p
	}
	refusing := *p
	refusing.Seccomp = p.Seccomp.RefuseSocketMemory()
	return &refusing
}

// stopMemoryWatch leaves the programs where they are: the next daemon goes on with them.
func (m *Manager) stopMemoryWatch() {
	if m.memory != nil {
		m.memory.stop()
		m.memory.work.Wait()
	}
}

// removeMemoryWatch takes the programs away, once there is no sandbox.
func (h *host) removeMemoryWatch() error {
	if err := sockmem.Remove(h.paths.bpf()); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.sockets", err)
	}
	return mount.RemovePoint(h.paths.bpf())
}

// watchSockets looks at the sockets while there are any, until ctx ends.
func (m *Manager) watchSockets(ctx context.Context, w sockets) {
	defer w.Close()
	failures := failures{m: m, what: "count the memory of sockets"}
	var rest restTime
	for there := false; ctx.Err() == nil; {
		if rest.goesOn(w) && there {
			if !sleep(ctx, watchSockets) {
				return
			}
			continue
		}
		begin := time.Now()
		var err error
		there, err = m.lookAtSockets(w)
		pause := max(watchSockets, watchRest*time.Since(begin))
		if err == nil && !there {
			pause, err = 0, w.Wait(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		failures.note(err)
		if err != nil { // Wait may fail at once, again and again
			pause = max(pause, watchSockets)
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// restTime is the time in which no look is needed: what sockets hold grows by the work of
// their processes. Packets from outside add to it too, but slowly.
type restTime struct {
	worked time.Duration // of all sandboxes, when the last look began
	looks  int           // that were left out since
}

// goesOn reports whether the next look can be left out. A process that runs may have
// worked for a tick of the clock more than the kernel tells. None is left out where the
// kernel does not tell.
func (r *restTime) goesOn(w sockets) bool {
	worked, err := w.Worked()
	if err != nil || worked-r.worked >= littleWork || r.looks == maxRest {
		r.worked, r.looks = worked, 0
		return false
	}
	r.looks++
	return true
}

// lookAtSockets ends the sandboxes whose sockets hold too much, and reports whether
// there is any socket. If not, the next one ends a Wait.
func (m *Manager) lookAtSockets(w sockets) (there bool, err error) {
	held, n, err := w.Look(false)
	if err != nil {
		return true, err
	}
	if n == 0 { // a socket that was made since is seen now, or ends Wait
		_, n, err = w.Look(true)
		return n > 0, err
	}
	if !anyExcess(held) {
		return true, nil
	}
	if held, _, err = w.Look(false); err != nil { // a sum can be wrong once
		return true, err
	}
	return true, m.endSockets(held)
}

func anyExcess(held map[uint64]sockmem.Held) bool {
	for _, h := range held {
		if h.Uncharged > maxSockets || h.Total > maxPastLimit {
			return true
		}
	}
	return false
}

// endSockets ends the sandboxes whose sockets hold too much.
func (m *Manager) endSockets(held map[uint64]sockmem.Held) error {
	var errs []error
	for _, s := range m.all() {
		what, err := m.excessSockets(s, held)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is being made, or removed
			errs = append(errs, err)
		}
		if what != "" && !s.isOver() {
			m.endUncharged(s, what)
		}
	}
	for _, h := range held {
		if h.Uncharged > maxSockets {
			errs = append(errs, fmt.Errorf("sockets of a sandbox that is gone hold %d MiB: another sandbox has them", h.Uncharged>>20))
		}
	}
	return errors.Join(errs...)
}

// excessSockets says what the sockets of s hold too much of, "" where they do not. It
// takes s out of held.
func (h *host) excessSockets(s *sandbox, held map[uint64]sockmem.Held) (string, error) {
	group, err := h.group(s.id)
	if err != nil {
		return "", err
	}
	id, err := sockmem.ID(group.UnifiedDir())
	if err != nil {
		return "", err
	}
	counted := held[id]
	delete(held, id)
	if counted.Uncharged > maxSockets {
		return fmt.Sprintf("%d MiB in sockets", counted.Uncharged>>20), nil
	}
	if counted.Total <= maxPastLimit {
		return "", nil
	}
	n, err := group.SocketsPastLimit()
	if err != nil || n <= maxPastLimit {
		return "", err
	}
	return fmt.Sprintf("%d MiB of data in sockets past their limit", n>>20), nil
}
