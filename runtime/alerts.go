package runtime

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/usage"
)

// watches are those of one sandbox, for the alerts of its profile.
type watches struct{ memory, cpu, pids, refusals usage.Watch }

// alert tells what the last sample of s shows of what its profile asks for.
func (m *Manager) alert(ctx context.Context, s *sandbox) {
	r := s.kept()
	a := m.profileOf(r).Alerts
	if a == (plan.Alerts{}) {
		return
	}
	var refused int64
	if e := m.egressOf(r); e != nil {
		refused = e.Refused + e.LookupsRefused
	}
	for _, d := range s.meter.alerts(a, r.Limits, refused) {
		m.emit(ctx, r, events.AlertRaised, d)
	}
}

func (t *meter) alerts(a plan.Alerts, l plan.Limits, refused int64) (list []events.Data) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cpu := t.point.Since(t.series.Last(t.point.At, cpuSpan)).CPUPercent
	for _, c := range []struct {
		limit string
		watch *usage.Watch
		than  plan.Threshold
		share float64 // of the limit, in percent
	}{
		{"memory", &t.watches.memory, a.Memory, share(float64(t.point.MemoryBytes), l.MemoryBytes)},
		{"cpu", &t.watches.cpu, a.CPU, share(cpu*10, l.MilliCPU)},
		{"pids", &t.watches.pids, a.PIDs, share(float64(t.point.PIDs), l.PIDs)},
	} {
		if c.than.Percent > 0 && c.watch.Raise(t.point.At, c.share > float64(c.than.Percent), c.than.For) {
			list = append(list, events.Data{Limit: c.limit, Reason: fmt.Sprintf("above %d%% of the limit for %s: %.0f%%", c.than.Percent, c.than.For, c.share)})
		}
	}
	if a.Refusals > 0 && t.watches.refusals.Raise(t.point.At, refused > a.Refusals, 0) {
		list = append(list, events.Data{Limit: "refusals", Reason: fmt.Sprintf("more than %d refusals: %d", a.Refusals, refused)})
	}
	return list
}

func share(n float64, limit int64) float64 {
	if limit <= 0 {
		return 0
	}
	return 100 * n / float64(limit)
}
