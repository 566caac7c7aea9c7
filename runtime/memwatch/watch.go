package memwatch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/cgroups/sockmem"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// Sandbox is one that is watched.
type Sandbox struct {
	ID    string
	Owner uint32 // UID
	Group func() (*cgroups.Group, error)
	Over  func() bool
	End   func(cause error)
}

// Fleet has the sandboxes.
type Fleet interface {
	// Watched returns all sandboxes.
	Watched() []Sandbox
	// AwaitSandbox returns as soon as there is a sandbox, and false if ctx ends first.
	AwaitSandbox(ctx context.Context) bool
}

// Options are what a Watch works with.
type Options struct {
	Group string // directory of the sandboxes' cgroups in the cgroup2 hierarchy; empty: there is none
	BPF   string // directory for what the kernel keeps over a restart of the daemon
	Log   *slog.Logger
}

// Watch counts kernel memory that no cgroup counts. A nil Watch counts none, and says
// nothing of it.
type Watch struct {
	fleet   Fleet
	log     *slog.Logger
	opened  chan struct{} // sockets are counted from now on, or cannot be
	failure error         // why not; set before opened
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// Start counts, and ends sandboxes past a bound, until ctx ends or Stop is called.
func Start(ctx context.Context, fleet Fleet, o Options) *Watch {
	ctx, stop := context.WithCancel(ctx)
	w := &Watch{fleet: fleet, log: o.Log, opened: make(chan struct{}), stop: stop}
	w.work.Go(func() { w.watchLocks(ctx) })
	w.work.Go(func() {
		counted, err := openSockets(ctx, o)
		w.failure = err
		close(w.opened)
		switch {
		case err == nil:
			w.watchSockets(ctx, counted)
		case ctx.Err() == nil: // else the daemon ends
			w.log.Warn("the memory of sockets is not counted: new sandboxes may not use time stamps, corked datagrams and error queues", "code", sbxerr.Of(err), "err", err)
		}
	})
	return w
}

// openSockets counts the sockets of all sandboxes to come, and of those there are. It has
// proved that they are counted.
func openSockets(ctx context.Context, o Options) (sockets, error) {
	const op = "memwatch.open"
	if o.Group == "" {
		return nil, sbxerr.New(sbxerr.SocketMemory, op, "this host has no cgroup2 hierarchy")
	}
	if err := os.Mkdir(o.Group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, sbxerr.Wrap(sbxerr.SocketMemory, op, err)
	}
	if err := mount.AttachBPF(o.BPF); err != nil {
		return nil, sbxerr.Wrap(sbxerr.SocketMemory, op, err)
	}
	counted, err := sockmem.Open(ctx, o.Group, o.BPF)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.SocketMemory, op, err)
	}
	return counted, nil
}

// Await returns when sockets are counted, or cannot be.
func (w *Watch) Await(ctx context.Context) error {
	if w == nil {
		return nil
	}
	select {
	case <-w.opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Uncounted says why the memory of sockets is not counted, nil where it is.
func (w *Watch) Uncounted() error {
	if w == nil {
		return nil
	}
	select {
	case <-w.opened:
		return w.failure
	default: // no sandbox is made before
		return nil
	}
}

// Stop ends the watch. The programs stay where they are: the next daemon goes on with them.
func (w *Watch) Stop() {
	if w != nil {
		w.stop()
		w.work.Wait()
	}
}

// Remove takes the programs away, once there is no sandbox.
func Remove(bpf string) error {
	if err := sockmem.Remove(bpf); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "memwatch.remove", err)
	}
	return mount.RemovePoint(bpf)
}
