package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/uncharged"
)

// Bounds of what a sandbox may have of the kernel's memory that no cgroup counts.
const (
	maxLocks     = 10_000   // of byte ranges, or of files; SQLite holds fewer than ten
	maxSockets   = 32 << 20 // bytes that its sockets hold
	maxPastLimit = 32 << 20 // bytes of sockets past their limit, on cgroup v1
)

// The pace of the watch.
const (
	watchSockets = 40 * time.Millisecond
	watchLocks   = 2 * time.Second
	// watchRest is how much longer than a look the pause after it is, at least.
	watchRest = 5
	// A look is left out while all sandboxes together have worked so little since the last
	// one. The fastest attack that is known fills 3 MiB in this time.
	littleWork = time.Millisecond
	maxRest    = 10 // looks
)

// errUncharged is in the cause with which a sandbox past a bound is ended.
var errUncharged = sbxerr.New(sbxerr.KernelMemory, "runtime.watch", "the sandbox took kernel memory that no limit counts")

// watchLocks counts the locks of files while there are sandboxes, until ctx ends.
func (m *Manager) watchLocks(ctx context.Context) {
	failures := failures{m: m, what: "count the file locks of sandboxes"}
	for m.awaitSandbox(ctx) {
		begin := time.Now()
		failures.note(m.endLockers())
		if !sleep(ctx, max(watchLocks, watchRest*time.Since(begin))) {
			return
		}
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

// sleep reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// failures logs the first of several failures in a row.
type failures struct {
	m      *Manager
	what   string
	failed bool
}

func (f *failures) note(err error) {
	if err != nil && !f.failed {
		f.m.log.Error(f.what, "err", err)
	}
	f.failed = err != nil
}

// endLockers ends the sandboxes that hold too many locks.
func (m *Manager) endLockers() error {
	if many, err := uncharged.MoreLocks(maxLocks); err != nil || !many {
		return err
	}
	return m.endEach(m.excessLocks)
}

// endEach ends the sandboxes of which excess says what they have too much of.
func (m *Manager) endEach(excess func(*sandbox) (string, error)) (last error) {
	for _, s := range m.all() {
		if s.isOver() {
			continue
		}
		what, err := excess(s)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is being made, or removed
			last = err
		}
		if what != "" {
			m.endUncharged(s, what)
		}
	}
	return last
}

// excessLocks says of which locks s holds too many, "" where it does not.
func (h *host) excessLocks(s *sandbox) (string, error) {
	group, err := h.group(s.id)
	if err != nil {
		return "", err
	}
	pids, err := group.Procs()
	if err != nil {
		return "", err
	}
	switch held, err := uncharged.LocksOf(pids, maxLocks); {
	case err != nil:
		return "", err
	case held.Ranges > maxLocks:
		return fmt.Sprintf("more than %d byte-range locks", maxLocks), nil
	case held.Files > maxLocks:
		return fmt.Sprintf("more than %d descriptors of locked files", maxLocks), nil
	}
	return "", nil
}

func (h *host) endUncharged(s *sandbox, what string) {
	h.log.Warn("end a sandbox for its kernel memory", "sandbox", s.id, "held", what)
	s.end(fmt.Errorf("%w: %s", errUncharged, what))
}
