package runtime

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/runtime/pid1"
)

// keptEnding is what is kept of how a main command ended before all that it started
// is ended too, and counted: PID 1, which could tell it to a daemon that comes after
// this one, ends with that.
type keptEnding struct {
	Exit     pid1.Exit     `json:"exit"`
	Known    bool          `json:"known"`
	Reason   Reason        `json:"reason"`
	TimedOut bool          `json:"timed_out"`
	Duration time.Duration `json:"duration"`
}

// keepEnding keeps how e ended, where another daemon may be asked.
func (m *Manager) keepEnding(e *execution, end ending, duration time.Duration) {
	if !e.s.kept().outlives() {
		return
	}
	e.mu.Lock()
	record := e.record
	e.mu.Unlock()
	record.Ending = &keptEnding{Exit: end.exit, Known: end.known, Reason: end.reason, TimedOut: end.timedOut, Duration: duration}
	record.EndedAt = time.Now().Round(0)
	if err := e.s.log.Put(e.number(), record); err != nil {
		m.log.Warn("keep the end of a command", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

// completeEnding makes the result of e out of what an earlier daemon kept, and keeps
// it while the sandbox's cgroup is there, which counted for it.
func (m *Manager) completeEnding(ctx context.Context, e *execution) {
	s, kept := e.s, e.record.Ending
	end := ending{exit: kept.Exit, known: kept.Known, reason: kept.Reason, timedOut: kept.TimedOut}
	e.record.Result, e.record.Ending = m.result(ctx, s, e, end, kept.Duration), nil
	if r := s.kept(); counts(r.Network) && e.record.Result.Egress == nil && m.opts.Traffic != nil {
		if before, err := m.opts.Traffic.Counts(s.id); err == nil {
			e.record.Result.Egress = countersOf(countersBefore(before))
		}
	}
	if err := s.log.Put(e.number(), e.record); err != nil {
		m.log.Warn("keep result", "sandbox", s.id, "exec", e.number(), "err", err)
	}
}
