package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/uncharged"
	"github.com/caisson-run/caisson/sbxerr"
)

// Bounds of what a sandbox may have of the kernel's memory that no cgroup counts.
const (
	maxLocks      = 10_000   // byte-range locks; SQLite holds fewer than ten
	maxUnaccepted = 16 << 20 // bytes of TCP connections that nobody accepted
	maxPastLimit  = 32 << 20 // bytes of sockets past their limit, on cgroup v1
)

// The pace of the watch.
const (
	watchSockets = 25 * time.Millisecond // one small file for all sandboxes
	watchLocks   = 2 * time.Second
	// socketGrowth is by how much the memory of the host's sockets has to grow before
	// the sandboxes are looked at one by one.
	socketGrowth = 4 << 20
	// watchRest is how much longer than a look the pause after it is, at least.
	watchRest = 5
)

// errUncharged is in the cause with which a sandbox past a bound is ended.
var errUncharged = sbxerr.New(sbxerr.KernelMemory, "runtime.watch", "the sandbox took kernel memory that no limit counts")

// WatchMemory counts the kernel memory of sandboxes that no cgroup counts, and ends
// those past a bound, until ctx ends. It rests while there is no sandbox.
func (m *Manager) WatchMemory(ctx context.Context) {
	w := memoryWatch{sockets: uncharged.Sockets, look: paced(m.endSockets)}
	endLockers := paced(m.endLockers)
	sockets, locks := time.NewTicker(watchSockets), time.NewTicker(watchLocks)
	defer sockets.Stop()
	defer locks.Stop()
	failed := false // the last look failed, which was logged
	for m.awaitSandbox(ctx) {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-sockets.C:
			err = w.lookSockets()
		case <-locks.C:
			err = endLockers()
		}
		if errors.Is(err, errPaused) {
			continue
		}
		if err != nil && !failed {
			m.log.Error("count kernel memory of sandboxes", "err", err)
		}
		failed = err != nil
	}
}

// awaitSandbox returns as soon as there is a sandbox, and reports false if ctx ends first.
func (m *Manager) awaitSandbox(ctx context.Context) bool {
	for ctx.Err() == nil {
		m.mu.Lock()
		n := len(m.sandboxes)
		m.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-m.first:
		case <-ctx.Done():
		}
	}
	return false
}

// paced is look, but does nothing when the last call is too recent for what it cost.
func paced(look func() error) func() error {
	var next time.Time
	return func() error {
		begin := time.Now()
		if begin.Before(next) {
			return errPaused
		}
		err := look()
		next = time.Now().Add(watchRest * time.Since(begin))
		return err
	}
}

// errPaused is why a look was left out.
var errPaused = errors.New("the last look is too recent")

// memoryWatch looks at sandboxes when the sockets of the host have grown.
type memoryWatch struct {
	sockets func() (int64, error)
	look    func() error

	base int64 // the memory at the last look at sandboxes, or the least since
}

func (w *memoryWatch) lookSockets() error {
	now, err := w.sockets()
	if err != nil {
		return err
	}
	if w.base = min(w.base, now); now < w.base+socketGrowth {
		return nil
	}
	if err = w.look(); !errors.Is(err, errPaused) {
		w.base = now
	}
	return err
}

// endSockets ends the sandboxes whose sockets hold too much.
func (m *Manager) endSockets() (last error) {
	for _, s := range m.all() {
		if s.isOver() {
			continue
		}
		what, err := m.excessSockets(s)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is being made, or removed
			last = err
		}
		if what != "" {
			m.endUncharged(s, what)
		}
	}
	return last
}

// excessSockets says what the sockets of s hold too much of, "" where they do not.
func (m *Manager) excessSockets(s *sandbox) (string, error) {
	switch n, err := netns.Unaccepted(m.paths.netns(s.id)); {
	case err != nil:
		return "", err
	case n > maxUnaccepted:
		return fmt.Sprintf("%d MiB of TCP connections that nobody accepted", n>>20), nil
	}
	group, err := m.group(s.id)
	if err != nil {
		return "", err
	}
	n, err := group.SocketsPastLimit()
	if err != nil || n <= maxPastLimit {
		return "", err
	}
	return fmt.Sprintf("%d MiB of data in sockets past their limit", n>>20), nil
}

// endLockers ends the sandboxes that hold too many locks. Of more locks than can be
// read at once, the sandbox that holds most of those is ended.
func (m *Manager) endLockers() error {
	perProcess, all, err := uncharged.Locks()
	if err != nil {
		return err
	}
	total := 0
	for _, n := range perProcess {
		total += n
	}
	if total <= maxLocks {
		return nil
	}
	held := map[string]int{}
	for pid, n := range perProcess {
		held[uncharged.Group(pid, m.opts.CgroupParent)] += n
	}
	delete(held, "") // the host's own
	for id, n := range lockers(held, all) {
		if s := m.byID(id); s != nil {
			m.endUncharged(s, fmt.Sprintf("%d byte-range locks", n))
		}
	}
	return nil
}

// lockers picks the sandboxes that hold too many locks.
func lockers(held map[string]int, all bool) map[string]int {
	over, most := map[string]int{}, ""
	for id, n := range held {
		if n > maxLocks {
			over[id] = n
		}
		if n > held[most] {
			most = id
		}
	}
	if !all && most != "" {
		over[most] = held[most]
	}
	return over
}

func (m *Manager) endUncharged(s *sandbox, what string) {
	m.log.Warn("end a sandbox for its kernel memory", "sandbox", s.id, "held", what)
	s.end(fmt.Errorf("%w: %s", errUncharged, what))
}
