package memwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/cgroups/sockmem"
)

// sockets adds up what the sockets of sandboxes hold. Package sockmem implements it.
type sockets interface {
	Look(arm bool) (held map[uint64]sockmem.Held, sockets int, err error)
	Worked() (time.Duration, error)
	Wait(context.Context) error
	Close() error
}

// watchSockets looks at the sockets while there are any, until ctx ends.
func (w *Watch) watchSockets(ctx context.Context, counted sockets) {
	defer counted.Close()
	failures := failures{log: w.log, what: "count the memory of sockets"}
	var rest restTime
	for there := false; ctx.Err() == nil; {
		if rest.goesOn(counted) && there {
			if !sleep(ctx, watchSockets) {
				return
			}
			continue
		}
		var err error
		took := processorTime(func() { there, err = w.lookAtSockets(counted) })
		pause := max(watchSockets, watchRest*took)
		if err == nil && !there {
			pause, err = 0, counted.Wait(ctx)
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

// processorTime is what f takes of a processor. Sandboxes that keep all of them busy make it
// last longer, and must not make the pause after it longer.
func processorTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Timespec
	beforeErr := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before)
	f()
	if err := errors.Join(beforeErr, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after)); err != nil {
		return 0 // clock_gettime(2): every kernel has this clock
	}
	return time.Duration(after.Nano() - before.Nano())
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
func (w *Watch) lookAtSockets(counted sockets) (there bool, err error) {
	held, n, err := counted.Look(false)
	if err != nil {
		return true, err
	}
	if n == 0 { // a socket that was made since is seen now, or ends Wait
		_, n, err = counted.Look(true)
		return n > 0, err
	}
	if n <= sockmem.Most && !anyExcess(held) {
		return true, nil
	}
	if held, _, err = counted.Look(false); err != nil { // a sum can be wrong once
		return true, err
	}
	left, err := w.endSockets(held)
	w.endMost(left)
	return true, err
}

func anyExcess(held map[uint64]sockmem.Held) bool {
	for _, h := range held {
		if h.Uncharged > maxSockets || h.Total > maxPastLimit || h.Sockets > sockmem.Many {
			return true
		}
	}
	return false
}

// holder is a sandbox with sockets.
type holder struct {
	Sandbox
	sockets int
}

// endSockets ends the sandboxes whose sockets hold too much, and returns the others.
func (w *Watch) endSockets(held map[uint64]sockmem.Held) (left []holder, err error) {
	var errs []error
	for _, s := range w.fleet.Watched() {
		what, counted, err := excessSockets(s, held)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it is being made, or removed
			errs = append(errs, err)
		}
		switch {
		case s.Over():
		case what != "":
			w.end(s, what)
		case counted.Sockets > 0:
			left = append(left, holder{s, int(counted.Sockets)})
		}
	}
	for _, h := range held {
		if h.Uncharged > maxSockets {
			errs = append(errs, fmt.Errorf("sockets of a sandbox that is gone hold %d MiB: another sandbox has them", h.Uncharged>>20))
		}
	}
	return left, errors.Join(errs...)
}

// endMost ends sandboxes until all together have no more sockets than they may: each time the
// one with the most, of the owner with the most.
func (w *Watch) endMost(left []holder) {
	owned, all := map[uint32]int{}, 0
	for _, h := range left {
		owned[h.Owner] += h.sockets
		all += h.sockets
	}
	slices.SortFunc(left, func(a, b holder) int { return cmp.Compare(b.sockets, a.sockets) })
	for all > sockmem.Most {
		most := left[0].Owner
		for owner, n := range owned {
			if n > owned[most] {
				most = owner
			}
		}
		i := slices.IndexFunc(left, func(h holder) bool { return h.Owner == most })
		h := left[i]
		w.end(h.Sandbox, fmt.Sprintf("%d sockets, the most of those of all sandboxes, more than %d,", h.sockets, sockmem.Most))
		left = slices.Delete(left, i, i+1)
		owned[most] -= h.sockets
		all -= h.sockets
	}
}

// excessSockets says what the sockets of s hold too much of, "" where they do not, and what
// they hold. It takes s out of held.
func excessSockets(s Sandbox, held map[uint64]sockmem.Held) (what string, counted sockmem.Held, err error) {
	group, err := s.Group()
	if err != nil {
		return "", counted, err
	}
	id, err := sockmem.ID(group.UnifiedDir())
	if err != nil {
		return "", counted, err
	}
	counted = held[id]
	delete(held, id)
	if counted.Uncharged > maxSockets {
		return fmt.Sprintf("%d MiB in sockets", counted.Uncharged>>20), counted, nil
	}
	if counted.Sockets > sockmem.Many { // a look takes as long as there are sockets
		return fmt.Sprintf("%d sockets, more than %d,", counted.Sockets, sockmem.Many), counted, nil
	}
	if counted.Total <= maxPastLimit {
		return "", counted, nil
	}
	n, err := group.SocketsPastLimit()
	if err != nil || n <= maxPastLimit {
		return "", counted, err
	}
	return fmt.Sprintf("%d MiB of data in sockets past their limit", n>>20), counted, nil
}
