package runtime

import (
	"context"
	"errors"
	goruntime "runtime"
	"slices"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// ending is how a command ended, before it is told. That of a main command is kept
// before all that it started is ended too, and counted: PID 1, which could tell it to
// a daemon that comes after this one, ends with that.
type ending struct {
	Exit     pid1.Exit     `json:"exit"`
	Known    bool          `json:"known"` // PID 1 told how; otherwise it ended first
	Reason   Reason        `json:"reason"`
	TimedOut bool          `json:"timed_out"`
	Duration time.Duration `json:"duration"`
	// Cause is what canceled the command alone; empty where its sandbox ended.
	Cause Cause `json:"cause,omitempty"`
	// FullTmpfs and FullVolumes were full when a command failed, and FullDisk says so of the disk.
	FullTmpfs   []string `json:"full_tmpfs,omitempty"`
	FullVolumes []string `json:"full_volumes,omitempty"`
	FullDisk    bool     `json:"full_disk,omitempty"`
	// Forced says that the command was to end, so that all that it started ends with it.
	Forced bool `json:"forced,omitempty"`
	// Used is the CPU of the sandbox when its main command had ended: its own end takes more.
	Used cgroups.CPUUse `json:"used"`
	// Ended counts the processes that the command had started and that were ended with it.
	Ended int `json:"ended,omitempty"`
}

// watch sees a started command to its end and makes its result known.
func (h *host) watch(ctx context.Context, e *execution) {
	end := h.await(ctx, e)
	if !e.s.concludes(e) {
		return
	}
	_ = failpoint.At("exec/over") // only to be killed at: the command has ended
	if e.record.Ending == nil {
		h.endRest(ctx, e, &end)
		end.Ended = e.endedWith(end)
	}
	if e.record.Ending == nil {
		h.lookAtRoom(e.s, &end)
	}
	if e.s.isMain(e) && end.Used == (cgroups.CPUUse{}) {
		end.Used = h.usedSoFar(e.s)
	}
	if e.s.isMain(e) { // the result counts all that it started, so that ends first
		h.keepEnding(e, end)
		_ = failpoint.At("exec/ending") // only to be killed at: the command has ended
		h.endProcesses(ctx, e.s)
	}
	h.settle(ctx, e)
	close(e.settled)
	_ = failpoint.At("exec/settled") // only to be killed at: the command has ended
	h.conclude(ctx, e, end)
}

// await returns when the command has ended: by itself, because its time was
// over, because somebody wanted it to end, or because PID 1 is gone. One whose ending
// an earlier daemon kept has.
func (h *host) await(ctx context.Context, e *execution) ending {
	if kept := e.record.Ending; kept != nil {
		return *kept
	}
	var end ending
	deadline, stop := after(e.record.Deadline)
	defer stop()
	var grace <-chan time.Time
	if over := e.record.Over; over != "" { // an earlier daemon began to end it
		end.TimedOut = over == ReasonTimeout
		if !end.TimedOut {
			end.Reason = over
		}
		end.Forced, deadline, grace = true, nil, h.terminate(ctx, e)
	}
	exited := e.process().Exited()
	for {
		select {
		case <-exited:
			return end.settle(ctx, e)
		case <-e.s.init.Done():
			return end.settle(ctx, e)
		case <-deadline:
			end.Forced, end.TimedOut, deadline = true, true, nil
			h.keepOver(e, ReasonTimeout)
			grace = h.terminate(ctx, e)
		case why := <-e.ending:
			end.Forced, end.Reason, end.Cause = true, ReasonCanceled, causeOf(why)
			h.keepOver(e, ReasonCanceled)
			grace = h.terminate(ctx, e)
		case <-grace:
			grace = h.killExec(ctx, e)
		}
	}
}

// settle asks PID 1 for the exit, which is known or never will be, and names the
// reason as far as the command itself tells it.
func (end ending) settle(ctx context.Context, e *execution) ending {
	var err error
	end.Exit, err = e.process().Wait(ctx)
	end.Duration = time.Duration(now() - e.record.Began)
	end.Known = err == nil
	switch {
	case end.TimedOut:
		end.Reason = ReasonTimeout
	case end.Reason != "":
	case !end.Known:
		end.Reason = e.s.endReason()
	case (end.Exit.Signal == syscall.SIGTERM || end.Exit.Signal == syscall.SIGHUP && e.record.TTY) && e.s.isStopping(): // which asked it to
		end.Reason = ReasonCanceled
	default:
		end.Reason = exitReason(end.Exit)
	}
	return end
}

// exitReason is why a command ended that nobody ended.
func exitReason(x pid1.Exit) Reason {
	if x.Signal != 0 {
		return ReasonSignaled
	}
	return ReasonExited
}

// after is a timer for a moment, where 0 is never.
func after(at moment) (<-chan time.Time, func()) {
	if at == 0 {
		return nil, func() {}
	}
	t := time.NewTimer(at.Left())
	return t.C, func() { t.Stop() }
}

// terminate asks the command to end, and returns when to make it.
func (h *host) terminate(ctx context.Context, e *execution) <-chan time.Time {
	h.askExec(ctx, e)
	return time.After(h.opts.StopGrace)
}

// askExec asks the command to end. A shell on a terminal ignores TERM, and ends when its
// terminal hangs up.
func (h *host) askExec(ctx context.Context, e *execution) {
	h.signal(ctx, e, syscall.SIGTERM)
	if e.record.TTY {
		h.signal(ctx, e, syscall.SIGHUP)
	}
}

// signal passes a signal to the command's process group, once it runs. A command
// that has ended meanwhile is no failure.
func (h *host) signal(ctx context.Context, e *execution, sig syscall.Signal) {
	proc, err := e.begun(ctx)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = proc.Signal(ctx, sig)
	}
	if err != nil {
		h.log.Debug("signal command", "sandbox", e.s.id, "exec", e.number(), "signal", int(sig), "err", err)
	}
}

// killExec ends all that the command started, by its cgroup, or with the whole sandbox
// where that lives for this command alone. On a host without tags it ends what PID 1 can
// tell to belong to the command. Where that fails, because PID 1 is frozen or new processes
// come too fast, it returns when to try again.
func (h *host) killExec(ctx context.Context, e *execution) <-chan time.Time {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Start)
	defer cancel()
	var err error
	switch {
	case e.s.isMain(e):
		e.noteEnded(h.allOf(e.s))
		h.kill(e.s)
	case e.group() != nil:
		e.noteEnded(inGroup(e.group()))
		err = h.killGroup(ctx, e, e.group())
	case e.tagged() != nil:
		err = h.endTagged(ctx, e)
	default:
		_, err = e.process().SignalAll(ctx, syscall.SIGKILL)
		h.flushIO(e.s)
	}
	if err == nil || errors.Is(err, sbxerr.State) { // or it has ended
		return nil
	}
	h.log.Warn("kill command", "sandbox", e.s.id, "exec", e.number(), "err", err)
	return time.After(killRetry)
}

// flushAfter is how long killed processes have to end by themselves.
const flushAfter = 100 * time.Millisecond

func (h *host) killGroup(ctx context.Context, e *execution, group *cgroups.Child) error {
	flush := time.AfterFunc(flushAfter, func() { h.flushIO(e.s) })
	defer flush.Stop()
	return group.Kill(ctx)
}

// flushIO lets killed processes of s end that wait for a disk at its rates: SIGKILL does not
// end that wait. A sandbox that could not get its rates back is ended.
func (h *host) flushIO(s *sandbox) {
	if !s.kept().Limits.RatesIO() { // nearly always; the command then waits for no change of s
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	limits := s.kept().Limits
	if !limits.RatesIO() || s.endCause() != nil { // at its end they are lifted for good
		return
	}
	group, err := h.group(s.id)
	if err == nil {
		err = h.noteChange(s, limits, group.FlushIO)
	}
	if err != nil {
		h.log.Error("flush I/O at a rate", "sandbox", s.id, "err", err)
		s.end(err)
	}
}

// killRetry is how long after a failed kill the next one is tried.
const killRetry = 5 * time.Second

// settleTimeout bounds the wait for output that was written before the end.
const settleTimeout = 10 * time.Second

// settle returns when all that the command wrote is kept. A child that holds
// the pipe open does not hold up the result: what it writes later is kept too.
func (h *host) settle(ctx context.Context, e *execution) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := errors.Join(e.stdout.Settle(ctx), e.stderr.Settle(ctx)); err != nil {
		h.log.Warn("settle output", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

// conclude makes the result known, keeps it, and lets PID 1 forget the command.
// It is known first, so that nobody waits for the rest: until PID 1 is told, a
// daemon that comes after this one hears the exit again.
func (h *host) conclude(ctx context.Context, e *execution, end ending) {
	s := e.s
	if e.group() != nil {
		e.noteEnded(inGroup(e.group()))
		end.Ended = e.endedWith(end)
	}
	empty := e.emptied(end) // before the limits are looked at: what is left may hit one after that
	result := h.result(ctx, s, e, end)
	if e.group() != nil {
		h.endGroup(ctx, e)
	}
	h.untag(s, e, empty)
	e.mu.Lock()
	e.record.Result, e.record.Ending, e.record.EndedAt, e.state = result, nil, time.Now().Round(0), ExecExited
	record := e.record
	e.mu.Unlock()
	s.update(func() { s.running-- })
	h.emitEnd(ctx, e, result) // before anybody is told
	close(e.done)
	goruntime.Gosched() // who waits for it goes first: a processor may not be free for both
	if err := s.log.Put(e.number(), record); err != nil {
		h.log.Warn("keep result", "sandbox", s.id, "exec", e.number(), "err", err)
	}
	_ = failpoint.At("exec/kept") // only to be killed at: the command has ended
	if end.Known {
		h.letGo(e)
	}
	_ = e.hangUpInput() // its reader is gone
	line := []any{"sandbox", s.id, "exec", e.number(), "code", result.ExitCode, "reason", string(result.Reason), "dur", result.Duration}
	h.log.Info("command ended", append(line, observe.ThrottledAttrs(result.ThrottledPeriods, result.Throttled)...)...)
	h.concluded(s, e)
	close(e.kept)
}

// endGroup removes the command's own cgroup. What the command left running in
// it is ended: it would outlive the limits that it was started with.
func (h *host) endGroup(ctx context.Context, e *execution) {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Start)
	defer cancel()
	if err := errors.Join(h.killGroup(ctx, e, e.group()), e.group().Remove(ctx)); err != nil {
		h.log.Warn("remove the command's cgroup", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

// concluded notes that e is over: s may be idle now, over, or hold more ended
// commands than it keeps.
func (h *host) concluded(s *sandbox, e *execution) {
	s.mu.Lock()
	if e.number() != s.record.Main {
		s.passedLocked(e)
	}
	s.idleLocked()
	s.record.Touch()
	idle := s.record
	surplus := s.surplusLocked(h.opts.KeptExecs, h.opts.KeptOutput)
	s.mu.Unlock()
	if idle.IdleTimeout > 0 { // else its own record tells when it ended
		h.keepRecord(s)
		s.rearm()
	}
	h.drop(s, surplus)
	for _, old := range s.lingering(maxLingering) {
		h.log.Warn("close the pipes of what an ended command left", "sandbox", s.id, "exec", old.number())
		old.stopFilling()
	}
	if idle.Main == e.number() {
		h.decideMerge(s, e)
		s.end(errMainEnded)
	}
}

// isAttended reports whether a caller is connected with the command.
func (e *execution) isAttended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.readers > 0
}

// askToEnd asks every command to end, also one that is being started once it runs,
// and waits for their end, no longer than until ctx ends or s is to end at once.
func (h *host) askToEnd(ctx context.Context, s *sandbox) {
	running := slices.DeleteFunc(s.executions(), func(e *execution) bool { return e.isDone() })
	for _, e := range running {
		go h.beside(s.end, func() { h.askExec(ctx, e) })
	}
	for _, e := range running {
		select {
		case <-e.done:
		case <-ctx.Done():
			return
		case <-s.asked:
			return
		}
	}
}

// concludes reports whether this daemon tells how e ended. From when it leaves
// s on, the next one does: PID 1 holds the exit and the pipes for it.
func (s *sandbox) concludes(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.leftAlone = errors.Is(s.ending, errLeft)
	e.concluding = !e.leftAlone
	return e.concluding
}

func (s *sandbox) isConcluding(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.concluding
}
