package runtime

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/layers"
	"github.com/caisson-run/caisson/runtime/memwatch"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/plan"
)

// exitTimeout is the exit code of a command whose time was over, as of
// timeout(1).
const exitTimeout = 124

// exitKilled is the exit code after SIGKILL, a shell's whose child it hit
// included. It alone proves nothing: the kernel's count of kills does.
const exitKilled = 128 + int(syscall.SIGKILL)

// result puts together how a command ended: what PID 1 told, checked against
// what the kernel counted. For the command that a sandbox is for, all other
// processes have ended and the whole cgroup is its; for another one the CPU time
// is that of the processes which it waited for.
func (h *host) result(ctx context.Context, s *sandbox, e *execution, end ending) *Result {
	r := &Result{SandboxID: s.id, ExecID: number(e.number()), Duration: end.Duration, Reason: end.Reason, TimedOut: end.TimedOut, Source: "command"}
	rec, main := s.kept(), s.isMain(e)
	r.Network, r.ImageVerified = string(rec.Network), rec.Verified
	var silent, unread error
	patience := execCountTimeout
	if main { // all that it started is over, so this is the whole of it
		patience = countTimeout
	}
	counting, cancel := context.WithTimeout(ctx, patience)
	r.Egress, silent = h.egressNow(counting, rec)
	cancel()
	r.Refusals, unread = h.refusals(s, e, r.Egress)
	failure := h.networkFailure(s)
	if main {
		r.Learned = h.learned(ctx, s, r.Egress)
	}
	r.ExitCode, r.Signal = exitCode(end)
	r.MaxRSSBytes = end.Exit.MaxRSSBytes
	r.CPU = end.Exit.User + end.Exit.System
	r.EndedProcesses = end.Ended
	r.Remaining = max(0, end.Exit.Remaining)
	r.Warnings = h.addUsage(ctx, s, e, r, end.Used)
	if failure != nil {
		r.Warnings = append(r.Warnings, notServed(rec.Network)+" when the command ended: "+failure.Error())
	} else if silent != nil {
		r.Warnings = append(r.Warnings, "not all that the sandbox tried is counted: "+silent.Error())
	}
	if unread != nil {
		r.Warnings = append(r.Warnings, "not all that was refused is listed: "+unread.Error())
	}
	byRuntime := []Reason{ReasonCanceled, ReasonExpired, ReasonKernelMemory}
	if r.OOMKilled && r.ExitCode == exitKilled && !end.TimedOut && !slices.Contains(byRuntime, end.Reason) {
		r.Reason = ReasonOOM
	}
	if r.Reason == ReasonCanceled {
		r.Cause = e.cause(end)
	}
	if r.Reason == ReasonLost || slices.Contains(byRuntime, r.Reason) {
		r.Source = "runtime"
	}
	if cause := s.endCause(); errors.Is(cause, memwatch.ErrUncharged) && r.Reason == ReasonKernelMemory || errors.Is(cause, layers.ErrLost) {
		r.Warnings = append(r.Warnings, cause.Error())
	}
	var cutOut, cutErr bool
	r.StdoutBytes, cutOut = e.stdout.Total()
	r.StderrBytes, cutErr = e.stderr.Total()
	r.Truncated = cutOut || cutErr
	for _, stream := range []struct {
		name  string
		store *output.Store
	}{{"stdout", e.stdout}, {"stderr", e.stderr}} {
		r.LostBytes += stream.store.LostBytes()
		if err := stream.store.Lost(); err != nil {
			r.Warnings = append(r.Warnings, "output of "+stream.name+" was not kept: "+err.Error())
		}
	}
	r.FullTmpfs, r.FullVolumes = end.FullTmpfs, end.FullVolumes
	r.LimitsHit = limitsHit(r, end.FullDisk)
	if r.ExitCode != 0 {
		r.ReadOnlyHint = saysReadOnly(ctx, e.stderr) || e.record.TTY && saysReadOnly(ctx, e.stdout)
	}
	if main {
		r.Stages = append(slices.Clone(rec.Stages), Stage{Name: "exec", Duration: e.took})
		r.Warnings = append(slices.Clone(rec.Warnings), r.Warnings...)
	} else if rec.unisolated() {
		r.Warnings = append([]string{plan.UnisolatedWarning}, r.Warnings...)
	}
	return r
}

// notServed says what there is not without a gateway.
func notServed(mode netns.Mode) string {
	if mode == netns.ModeBridge {
		return "refusals were not recorded"
	}
	return "the network was not served"
}

// exitCode gives the code that a shell would: 128+n on signal n.
func exitCode(e ending) (code, signal int) {
	signal = int(e.Exit.Signal)
	if !e.Known { // PID 1 ended first, and the kernel killed the rest
		signal = int(syscall.SIGKILL)
	}
	switch {
	case e.TimedOut:
		return exitTimeout, signal
	case signal != 0:
		return 128 + signal, signal
	}
	return int(e.Exit.Code), 0
}

// addUsage reads the cgroup's counters: the command's own where it has one, the
// sandbox's where that is for the command alone, and else only the limits that were hit.
// A counter that cannot be read stays zero and is said so.
func (h *host) addUsage(ctx context.Context, s *sandbox, e *execution, r *Result, used cgroups.CPUUse) (warnings []string) {
	main := s.isMain(e)
	const unknownHits = "limit violations are not known: "
	child := e.group()
	if child != nil {
		events, err := child.Events()
		if err != nil {
			warnings = append(warnings, unknownHits+err.Error())
		}
		r.OOMKilled, r.PIDsLimitHit = events.OOMKills > 0, events.PIDsMaxHits > 0
	}
	if err := h.addHits(ctx, s, e, r, main); err != nil {
		warnings = append(warnings, unknownHits+err.Error())
	}
	if child == nil && !main {
		return warnings
	}
	read := child.Stats
	if child == nil {
		group, err := h.group(s.id)
		if err != nil {
			return append(warnings, "usage is not known: "+err.Error())
		}
		read = group.Stats
	}
	stats, err := read()
	if err != nil {
		warnings = append(warnings, "usage is not known: "+err.Error())
	}
	use := stats.CPUUse
	if child == nil {
		s.meter.NoteCPU(metered{h, s}, use)
		use = cmp.Or(used, use).Since(e.record.Used)
	}
	s.update(func() { e.heldBack = observe.IsHeldBack(use) })
	r.CPU = use.CPU
	r.PeakMemoryBytes = stats.MemoryPeakBytes.N // 0 where the kernel does not count it
	r.ThrottledPeriods, r.Throttled = use.ThrottledPeriods, use.Throttled
	r.IOReadBytes = ifKnown(stats.IOReadBytes)
	if h.groups.Mode == cgroups.V2 { // else most of them are the host's
		r.IOWriteBytes = ifKnown(stats.IOWriteBytes)
	}
	return warnings
}
