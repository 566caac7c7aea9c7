package memwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
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
	// watchRest is how much longer than what a look took of a processor the pause after it is, at
	// least. An attacker who slows looks down fills more between two of them.
	watchRest = 2
	// A look is left out while all sandboxes together have worked so little since the last
	// one. The fastest attack that is known fills 3 MiB in this time.
	littleWork = time.Millisecond
	maxRest    = 10 // looks
)

// ErrUncharged is in the cause with which a sandbox past a bound is ended.
var ErrUncharged = sbxerr.New(sbxerr.KernelMemory, "runtime.watch", "the sandbox took kernel memory that no limit counts")

// watchLocks counts the locks of files while there are sandboxes, until ctx ends.
func (w *Watch) watchLocks(ctx context.Context) {
	failures := failures{log: w.log, what: "count the file locks of sandboxes"}
	for w.fleet.AwaitSandbox(ctx) {
		took := processorTime(func() { failures.note(w.endLockers()) })
		if !sleep(ctx, max(watchLocks, watchRest*took)) {
			return
		}
	}
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
	log    *slog.Logger
	what   string
	failed bool
}

func (f *failures) note(err error) {
	if err != nil && !f.failed {
		f.log.Error(f.what, "err", err)
	}
	f.failed = err != nil
}

// endLockers ends the sandboxes that hold too many locks.
func (w *Watch) endLockers() error {
	if many, err := moreLocks(maxLocks); err != nil || !many {
		return err
	}
	return w.endEach(excessLocks)
}

// endEach ends the sandboxes of which excess says what they have too much of.
func (w *Watch) endEach(excess func(Sandbox) (string, error)) (last error) {
	for _, s := range w.fleet.Watched() {
		if s.Over() {
			continue
		}
		what, err := excess(s)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is being made, or removed
			last = err
		}
		if what != "" {
			w.end(s, what)
		}
	}
	return last
}

// excessLocks says of which locks s holds too many, "" where it does not.
func excessLocks(s Sandbox) (string, error) {
	group, err := s.Group()
	if err != nil {
		return "", err
	}
	pids, err := group.Procs()
	if err != nil {
		return "", err
	}
	switch held, err := locksOf(pids, maxLocks); {
	case err != nil:
		return "", err
	case held.Ranges > maxLocks:
		return fmt.Sprintf("more than %d byte-range locks", maxLocks), nil
	case held.Files > maxLocks:
		return fmt.Sprintf("more than %d descriptors of locked files", maxLocks), nil
	}
	return "", nil
}

func (w *Watch) end(s Sandbox, what string) {
	w.log.Warn("end a sandbox for its kernel memory", "sandbox", s.ID, "held", what)
	s.End(fmt.Errorf("%w: %s", ErrUncharged, what))
}
