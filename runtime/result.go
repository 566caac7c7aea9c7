package runtime

import (
	"slices"
	"syscall"
	"time"
)

// exitTimeout is the exit code of a command whose time was over, as of
// timeout(1).
const exitTimeout = 124

// exitKilled is the exit code after SIGKILL, a shell's whose child it hit
// included. It alone proves nothing: the kernel's count of kills does.
const exitKilled = 128 + int(syscall.SIGKILL)

// result puts together how a command ended: what PID 1 told, checked against
// what the kernel counted. It is read after the last process ended and before
// the cgroup is removed.
func (m *Manager) result(s *sandbox, e ending, duration time.Duration) *Result {
	r := &Result{SandboxID: s.plan.id, Duration: duration, Network: string(s.plan.network), Reason: e.reason, TimedOut: e.timedOut, Source: "command"}
	r.ExitCode, r.Signal = exitCode(e)
	r.MaxRSSBytes = e.exit.MaxRSSBytes
	m.addUsage(s, r)
	if r.OOMKilled && r.ExitCode == exitKilled && !e.timedOut && e.reason != ReasonCanceled {
		r.Reason = ReasonOOM
	}
	if r.Reason == ReasonLost || r.Reason == ReasonCanceled {
		r.Source = "runtime"
	}
	var cutOut, cutErr bool
	r.StdoutBytes, cutOut = s.stdout.Total()
	r.StderrBytes, cutErr = s.stderr.Total()
	r.Truncated = cutOut || cutErr
	for name, err := range map[string]error{"stdout": s.stdout.Lost(), "stderr": s.stderr.Lost()} {
		if err != nil {
			s.warn("output of " + name + " was not kept: " + err.Error())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Stages, r.Warnings = slices.Clone(s.stages), slices.Clone(s.warnings)
	return r
}

// exitCode gives the code that a shell would: 128+n on signal n.
func exitCode(e ending) (code, signal int) {
	signal = int(e.exit.Signal)
	if !e.known { // PID 1 ended first, and the kernel killed the rest
		signal = int(syscall.SIGKILL)
	}
	switch {
	case e.timedOut:
		return exitTimeout, signal
	case signal != 0:
		return 128 + signal, signal
	}
	return int(e.exit.Code), 0
}

// addUsage reads the cgroup's counters. A counter that cannot be read stays
// zero and is said so.
func (m *Manager) addUsage(s *sandbox, r *Result) {
	group, err := m.group(s.plan.id)
	if err != nil {
		s.warn("usage is not known: " + err.Error())
		return
	}
	stats, err := group.Stats()
	if err != nil {
		s.warn("usage is not known: " + err.Error())
	}
	r.CPU = stats.CPU
	r.PeakMemoryBytes = stats.MemoryPeakBytes.N // 0 where the kernel does not count it
	r.ThrottledPeriods = stats.ThrottledPeriods
	events, err := group.Events()
	if err != nil {
		s.warn("limit violations are not known: " + err.Error())
	}
	r.OOMKilled = events.OOMKills > 0
	r.PIDsLimitHit = events.PIDsMaxHits > 0
}
