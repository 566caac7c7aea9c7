package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/usage"
)

// throttledFor is how long the CPU limit must hold a sandbox back before it is told.
const throttledFor = 3 * time.Second

// throttle is what is known of how the CPU limit holds a sandbox back.
type throttle struct {
	watch   usage.Watch
	sampled cgroups.CPUUse // at the sample before
	told    bool           // an event told of it
}

// isHeldBack reports whether the limit ended a quarter of the scheduler periods or more.
func isHeldBack(use cgroups.CPUUse) bool {
	return use.ThrottledPeriods > 0 && 4*use.ThrottledPeriods >= use.Periods
}

// sampleThrottle tells when the CPU limit begins to hold s back, by the last sample, and
// when it no longer does.
func (h *host) sampleThrottle(ctx context.Context, s *sandbox) {
	r := s.kept()
	d := events.Data{Limit: "cpu"}
	if r.Main != 0 && r.Main != mainToCome {
		d.ExecID = number(r.Main)
	}
	change, use := s.meter.stepThrottle()
	switch change {
	case usage.Raised:
		d.Reason = fmt.Sprintf("the limit of %d.%03d CPUs ended %d of %d scheduler periods of the last second", r.Limits.MilliCPU/1000, r.Limits.MilliCPU%1000, use.ThrottledPeriods, use.Periods)
		h.log.Info("the CPU limit holds a sandbox back", "sandbox", s.id, "milli_cpu", r.Limits.MilliCPU, "throttled_periods", use.ThrottledPeriods, "periods", use.Periods)
		h.emit(ctx, r, events.LimitHit, d)
	case usage.Cleared:
		h.emit(ctx, r, events.LimitCleared, d)
	}
}

func (t *meter) stepThrottle() (usage.Change, cgroups.CPUUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	use := t.last.CPUUse.Since(t.throttle.sampled)
	t.throttle.sampled = t.last.CPUUse
	change := t.throttle.watch.Step(t.point.At, isHeldBack(use), throttledFor)
	t.throttle.told = t.throttle.told || change == usage.Raised
	return change, use
}

// noteUse takes the use of CPU at the end of the command that s is for.
func (h *host) noteUse(s *sandbox, use cgroups.CPUUse) {
	t := &s.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	h.countThrottledLocked(s, use)
	t.last.CPUUse = use
}

// countThrottledLocked adds what is new in use to the time that all sandboxes were held
// back. Where it is not known what an earlier daemon counted, that begins with this look.
func (h *host) countThrottledLocked(s *sandbox, use cgroups.CPUUse) {
	t := &s.meter
	h.beginMeterLocked(s)
	if d := use.Throttled - t.last.Throttled; d > 0 && !t.unknown {
		h.throttled.Add(int64(d))
	}
	t.unknown = false
}

// toldThrottled reports whether an event told that s was held back.
func (t *meter) toldThrottled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.throttle.told
}

// tellsThrottled reports whether the end of e is to tell that it was held back.
func (e *execution) tellsThrottled() bool {
	e.s.mu.Lock()
	held := e.heldBack
	e.s.mu.Unlock()
	return held && (e.group() != nil || !e.s.meter.toldThrottled())
}

// throttledAttrs are for the line of the log that tells the end of s.
func (t *meter) throttledAttrs() []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return throttledAttrs(t.last.ThrottledPeriods, t.last.Throttled)
}

// throttledAttrs are those of a line of the log, none where nothing was held back.
func throttledAttrs(periods int64, took time.Duration) []any {
	if periods == 0 {
		return nil
	}
	return []any{"throttled_periods", periods, "throttled", took}
}
