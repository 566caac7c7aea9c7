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
)

// The pace of the watch.
const (
	watchTCP   = 25 * time.Millisecond // one small file for all sandboxes
	watchLocks = 2 * time.Second
	// tcpGrowth is by how much the host's TCP memory has to grow before the sandboxes
	// are looked at one by one.
	tcpGrowth = 4 << 20
	// watchRest is how much longer than a look the pause after it is, at least.
	watchRest = 5
)

// errUncharged is in the cause with which a sandbox past a bound is ended.
var errUncharged = sbxerr.New(sbxerr.KernelMemory, "runtime.watch", "the sandbox took kernel memory that no limit counts")

// WatchMemory counts the kernel memory of sandboxes that no cgroup counts, and ends
// those past a bound, until ctx ends.
func (m *Manager) WatchMemory(ctx context.Context) {
	w := memoryWatch{tcp: uncharged.TCP, unaccepted: paced(m.endUnaccepted)}
	endLockers := paced(m.endLockers)
	tcp, locks := time.NewTicker(watchTCP), time.NewTicker(watchLocks)
	defer tcp.Stop()
	defer locks.Stop()
	failed := false // the last look failed, which was logged
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-tcp.C:
			err = w.lookTCP()
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

// memoryWatch looks at sandboxes when the TCP connections of the host have grown.
type memoryWatch struct {
	tcp        func() (int64, error)
	unaccepted func() error

	base int64 // the memory at the last look at sandboxes, or the least since
}

func (w *memoryWatch) lookTCP() error {
	now, err := w.tcp()
	if err != nil {
		return err
	}
	if w.base = min(w.base, now); now < w.base+tcpGrowth {
		return nil
	}
	if err = w.unaccepted(); !errors.Is(err, errPaused) {
		w.base = now
	}
	return err
}

// endUnaccepted ends the sandboxes in which too much waits to be accepted.
func (m *Manager) endUnaccepted() (last error) {
	for _, s := range m.all() {
		if s.isOver() {
			continue
		}
		switch n, err := netns.Unaccepted(m.paths.netns(s.id)); {
		case errors.Is(err, fs.ErrNotExist): // it is being made, or removed
		case err != nil:
			last = err
		case n > maxUnaccepted:
			m.endUncharged(s, fmt.Sprintf("%d MiB of TCP connections that nobody accepted", n>>20))
		}
	}
	return last
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
