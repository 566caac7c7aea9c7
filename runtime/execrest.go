package runtime

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
)

// endRest ends what a command that was ended has left running, and counts it. What
// earlier commands left goes on.
func (h *host) endRest(ctx context.Context, e *execution, end *ending) {
	switch {
	case !end.Forced && !e.wasKilled():
	case e.s.isMain(e):
		if end.Known { // else PID 1 has ended, and the rest of the sandbox with it
			e.noteEnded(h.allOf(e.s))
		}
	case e.tagged() != nil:
		ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Start)
		defer cancel()
		err := h.endTagged(ctx, e)
		if err != nil && !errors.Is(err, sbxerr.State) { // what is frozen ends when it is thawed
			h.log.Warn("end what a command left", "sandbox", e.s.id, "exec", e.number(), "err", err)
		}
		end.Exit.Remaining = e.s.leftRunning()
	}
}

// noteEnded notes processes of e that are about to be ended. Some may be known already.
func (e *execution) noteEnded(pids []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended == nil {
		e.ended = map[int]bool{}
	}
	for _, pid := range pids {
		e.ended[pid] = true
	}
}

// wasKilled reports whether a SIGKILL was sent to all that e started.
func (e *execution) wasKilled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ended) > 0
}

// endedWith returns how many processes were ended with e, which ended as end says.
func (e *execution) endedWith(end ending) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if end.Exit.Signal == syscall.SIGKILL || !end.Known { // it was one of them itself
		return max(0, len(e.ended)-1)
	}
	return len(e.ended)
}

// inGroup returns the processes in a cgroup, none of one that cannot be read.
func inGroup(group *cgroups.Child) []int {
	pids, _ := group.Procs()
	return pids
}

// allOf returns the processes of s but PID 1.
func (h *host) allOf(s *sandbox) []int {
	group, err := h.group(s.id)
	if err != nil {
		return nil
	}
	pids, _ := group.Procs() // likewise
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == s.process.pid })
}

// signalAll sends a signal to all that the command started and that still runs: to its
// cgroup, and on a host without tags to what PID 1 can tell to belong to it.
func (h *host) signalAll(ctx context.Context, e *execution, sig syscall.Signal) error {
	t := e.tagged()
	if t == nil {
		_, err := e.process().SignalAll(ctx, sig)
		return err
	}
	pids, err := t.Procs()
	switch {
	case err != nil:
		return err
	case len(pids) == 0:
		return sbxerr.New(sbxerr.State, "runtime.signal", "nothing of command %d runs any more", e.number())
	case sig == syscall.SIGKILL:
		return h.endTagged(ctx, e)
	}
	_, err = t.Signal(sig)
	return err
}
