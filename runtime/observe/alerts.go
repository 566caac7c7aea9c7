package observe

import (
	"fmt"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/usage"
)

// watches are those of one sandbox, for the alerts of its profile.
type watches struct{ memory, cpu, pids, tmpfs, refusals usage.Watch }

// Alerts are the events that the last sample asks for, of a sandbox with the limits l. fullest is
// its tmpfs with the least room, and refused how many connections and lookups were.
func (t *Meter) Alerts(a plan.Alerts, l plan.Limits, fullest mount.TmpfsUse, refused int64) (list []events.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.total.Point
	for _, c := range []struct {
		limit string
		watch *usage.Watch
		than  plan.Threshold
		share float64 // of the limit, in percent
		of    string
	}{
		{"memory", &t.watches.memory, a.Memory, share(float64(at.MemoryBytes), l.MemoryBytes), "the limit"},
		{"cpu", &t.watches.cpu, a.CPU, share(t.cpuLocked()*10, l.MilliCPU), "the limit"},
		{"pids", &t.watches.pids, a.PIDs, share(float64(at.PIDs), l.PIDs), "the limit"},
		{"tmpfs", &t.watches.tmpfs, a.Tmpfs, fullest.Percent, "the size of " + fullest.Point},
	} {
		if c.than.Percent == 0 {
			continue
		}
		switch c.watch.Step(at.At, c.share > float64(c.than.Percent), c.than.For) {
		case usage.Raised:
			list = append(list, events.Event{Type: events.AlertRaised, Data: events.Data{Limit: c.limit, Reason: passed(c.share, c.of, c.than)}})
		case usage.Cleared:
			list = append(list, events.Event{Type: events.AlertCleared, Data: events.Data{Limit: c.limit}})
		}
	}
	if a.Refusals > 0 && t.watches.refusals.Step(at.At, refused > a.Refusals, 0) == usage.Raised { // never less again
		list = append(list, events.Event{Type: events.AlertRaised, Data: events.Data{
			Limit: "refusals", Reason: fmt.Sprintf("%d connections and lookups refused, the alert is above %d", refused, a.Refusals),
		}})
	}
	return list
}

// passed says how far a threshold was passed.
func passed(share float64, of string, t plan.Threshold) string {
	text := fmt.Sprintf("%.1f%% of %s, the alert is above %d%%", share, of, t.Percent)
	if t.For > 0 {
		text += " for " + t.For.String()
	}
	return text
}

func share(n float64, limit int64) float64 {
	if limit <= 0 {
		return 0
	}
	return 100 * n / float64(limit)
}
