package observe

import (
	"fmt"
	"time"

	"github.com/caisson-run/caisson/cgroups"
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

// IsHeldBack reports whether the limit ended a quarter of the scheduler periods or more.
func IsHeldBack(use cgroups.CPUUse) bool {
	return use.ThrottledPeriods > 0 && 4*use.ThrottledPeriods >= use.Periods
}

// Throttled says whether the last sample shows that the CPU limit begins to hold the sandbox back,
// or no longer does, and what was used since the sample before.
func (t *Meter) Throttled() (usage.Change, cgroups.CPUUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	use := t.total.Last.CPUUse.Since(t.throttle.sampled)
	t.throttle.sampled = t.total.Last.CPUUse
	change := t.throttle.watch.Step(t.total.Point.At, IsHeldBack(use), throttledFor)
	t.throttle.told = t.throttle.told || change == usage.Raised
	return change, use
}

// NoteCPU takes the use of CPU at the end of the command that src is for.
func (t *Meter) NoteCPU(src Source, use cgroups.CPUUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heldBackLocked(src, use)
	t.total.Last.CPUUse = use
}

// heldBackLocked tells src what is new in use. Where it is not known what an earlier daemon
// counted, that begins with this look.
func (t *Meter) heldBackLocked(src Source, use cgroups.CPUUse) {
	t.beginLocked(src)
	if d := use.Throttled - t.total.Last.Throttled; d > 0 && !t.unknown {
		src.HeldBack(d)
	}
	t.unknown = false
}

// ToldThrottled reports whether Throttled said that the sandbox was held back.
func (t *Meter) ToldThrottled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.throttle.told
}

// ThrottledReason says how a limit of CPU held a sandbox back in the last second.
func ThrottledReason(milliCPU int64, use cgroups.CPUUse) string {
	return fmt.Sprintf("the limit of %d.%03d CPUs ended %d of %d scheduler periods of the last second", milliCPU/1000, milliCPU%1000, use.ThrottledPeriods, use.Periods)
}

// ThrottledAttrs are those of a line of the log, none where nothing was held back.
func ThrottledAttrs(periods int64, took time.Duration) []any {
	if periods == 0 {
		return nil
	}
	return []any{"throttled_periods", periods, "throttled", took}
}
