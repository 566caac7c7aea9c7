package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The pause between two looks at a group that is on its way out grows from
// the first to the second value: most are gone within a millisecond.
const (
	firstPause = 500 * time.Microsecond
	lastPause  = 50 * time.Millisecond
)

// Kill ends every process of the group and returns when none is left, or with
// an error when ctx is over. An empty or absent group is success. It does not
// remove the group.
//
// With cgroup.kill (kernel 5.14, v2 and hybrid) the kernel does it in one
// step that no fork escapes. Elsewhere the group is frozen first, so that it
// cannot fork, or reuse a pid, while it is being signalled.
func (g *Group) Kill(ctx context.Context) error {
	const op = "cgroups.kill"
	for wait, first := newPauses(), true; ; first = false {
		pids, err := g.Procs()
		if err != nil {
			return sbxerr.Wrap(sbxerr.Cgroup, op, err)
		}
		if len(pids) == 0 {
			return nil
		}
		if slices.Contains(pids, os.Getpid()) {
			return sbxerr.New(sbxerr.Internal, op, "kill %q: the calling process %d is in it", g.path, os.Getpid())
		}
		if err := g.killOnce(first); err != nil {
			return sbxerr.New(sbxerr.Cgroup, op, "kill %v of %q: %w", pids, g.path, err)
		}
		if err := wait.next(ctx); err != nil {
			return sbxerr.New(sbxerr.Cgroup, op, "wait for %v of %q to end: %w", pids, g.path, err)
		}
	}
}

// KillOthers ends every process of the group but the one with this pid, and returns how many
// it found first. It returns when none is left, or with an error when ctx is over. The group
// is frozen while its processes are signalled, so that none can fork.
func (g *Group) KillOthers(ctx context.Context, but int) (found int, err error) {
	const op = "cgroups.kill_others"
	for wait, first := newPauses(), true; ; first = false {
		pids, err := g.Procs()
		if err != nil {
			return found, sbxerr.Wrap(sbxerr.Cgroup, op, err)
		}
		others := slices.DeleteFunc(pids, func(pid int) bool { return pid == but })
		if first {
			found = len(others)
		}
		if len(others) == 0 {
			return found, nil
		}
		thaw, err := g.freeze()
		if err == nil {
			err = errors.Join(g.killAll(but), thaw(), g.FlushIO())
		}
		if err == nil {
			err = wait.next(ctx)
		}
		if err != nil {
			return found, sbxerr.New(sbxerr.Cgroup, op, "kill %v of %q: %w", others, g.path, err)
		}
	}
}

// killOnce signals every process that is in the group now. After cgroup.kill, processes get
// time to end before they are signalled one by one. That serves kernels without the file,
// processes outside the unified group, and processes that v1's freezer holds. Those that wait
// for a disk at a rate end as it is lifted.
func (g *Group) killOnce(first bool) error {
	if g.host.Unified != "" {
		err := writeFile(g.unified(), "cgroup.kill", "1")
		if err != nil && !gone(err) && !errors.Is(err, unix.EOPNOTSUPP) { // which a tag says
			return err
		}
		if err == nil && first {
			return nil
		}
	}
	thaw, err := g.freeze()
	if err != nil {
		return err
	}
	return errors.Join(g.killAll(0), thaw(), g.LiftIO())
}

// freeze stops the group where it can be stopped and returns how to undo it.
// v1's freezer answers FREEZING until all have stopped; SIGKILL is delivered
// at the thaw in any case, so there is no need to wait for that.
func (g *Group) freeze() (thaw func() error, err error) {
	set := func(frozen bool) error {
		if err := g.writeFreezer(frozen); err != nil && !gone(err) && !errors.Is(err, errNoFreezer) {
			return err
		}
		return nil
	}
	return func() error { return set(false) }, set(true)
}

// killAll sends SIGKILL to all processes but one.
func (g *Group) killAll(but int) error {
	_, err := g.signalAll(unix.SIGKILL, but)
	return err
}

// signalAll sends sig through pidfds, and returns how many processes got it. A pid could have been reused
// between reading it and opening its pidfd, so only those are signalled that
// are in the group after the pidfd was opened. The process but is left out.
func (g *Group) signalAll(sig unix.Signal, but int) (n int, err error) {
	before, err := g.Procs()
	if err != nil {
		return 0, err
	}
	fds := map[int]int{}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // a pidfd has nothing to write back
		}
	}()
	var errs []error
	for _, pid := range before {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			fds[pid] = fd
		case !errors.Is(err, unix.ESRCH):
			errs = append(errs, fmt.Errorf("open pidfd of %d: %w", pid, err))
		}
	}
	after, err := g.Procs()
	errs = append(errs, err)
	for pid, fd := range fds {
		if pid == but || !slices.Contains(after, pid) {
			continue
		}
		switch err := unix.PidfdSendSignal(fd, sig, nil, 0); {
		case err == nil:
			n++
		case !errors.Is(err, unix.ESRCH):
			errs = append(errs, fmt.Errorf("signal %d: %w", pid, err))
		}
	}
	return n, errors.Join(errs...)
}

// pauses is a growing wait.
type pauses struct{ now time.Duration }

func newPauses() *pauses { return &pauses{now: firstPause} }

// next waits, or returns the cause of ctx's end.
func (p *pauses) next(ctx context.Context) error {
	timer := time.NewTimer(p.now)
	defer timer.Stop()
	p.now = min(2*p.now, lastPause)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
