package runtime

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/usage"
)

// metered is a sandbox as its meter reads it.
type metered struct {
	*host
	s *sandbox
}

// Begin implements observe.Source. The meter of a sandbox of an earlier daemon goes on with what
// that one kept.
func (m metered) Begin() (made time.Time, kept *observe.Earlier) {
	made = m.s.kept().CreatedAt
	if m.s.plan != nil {
		return made, &observe.Earlier{}
	}
	kept, err := observe.Again(&m.usages, m.s.id, made)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("go on with what a sandbox used", "sandbox", m.s.id, "err", err)
	}
	return made, kept
}

// Read implements observe.Source.
func (m metered) Read() (read observe.Reading, ok bool) {
	u, err := m.usage(m.s.id)
	if err != nil { // the cgroup is gone, or the host is out of descriptors
		m.log.Debug("measure a sandbox", "sandbox", m.s.id, "err", err)
		return read, false
	}
	read.Usage = u
	if e := m.egressOf(m.s.kept()); e != nil {
		read.SentBytes, read.ReceivedBytes = e.SentBytes, e.ReceivedBytes
	}
	return read, true
}

// HeldBack implements observe.Source.
func (m metered) HeldBack(d time.Duration) { m.throttled.Add(int64(d)) }

func (h *host) usage(id string) (cgroups.Usage, error) {
	g, err := h.group(id)
	if err != nil {
		return cgroups.Usage{}, err
	}
	return g.Usage()
}

// StartSampling measures every live sandbox each second, until ctx ends. Those in pools
// are left out.
func (m *Manager) StartSampling(ctx context.Context) {
	go func() {
		tick := time.NewTicker(observe.Interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				m.sampleAll(ctx)
			}
		}
	}()
}

func (m *Manager) sampleAll(ctx context.Context) {
	all := m.all()
	for _, s := range all {
		if s.isMeasured() && !s.keeper.Sleeps(m.connections(s.id)) {
			s.meter.Measure(metered{&m.host, s})
			m.sampleIdle(ctx, s, all)
			m.alert(ctx, s)
			m.sampleThrottle(ctx, s)
			m.sampleLimits(ctx, s)
		}
	}
}

// isMeasured reports whether s lives and belongs to somebody.
func (s *sandbox) isMeasured() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.state == StateRunning || s.state == StatePaused || s.state == StateStopping || s.state == StateAdopting
	return live && !s.record.Pooled
}

// alert tells what the last sample of s shows of what its profile asks for.
func (h *host) alert(ctx context.Context, s *sandbox) {
	r := s.kept()
	a := h.profileOf(r).Alerts
	if a == (plan.Alerts{}) {
		return
	}
	var refused int64
	if e := h.egressOf(r); e != nil {
		refused = e.Refused + e.LookupsRefused
	}
	var fullest mount.TmpfsUse
	if a.Tmpfs.Percent > 0 {
		for _, u := range h.usedTmpfs(s) {
			if u.Percent > fullest.Percent {
				fullest = u
			}
		}
	}
	for _, e := range s.meter.Alerts(a, r.Limits, fullest, refused) {
		h.emit(ctx, r, e.Type, e.Data)
	}
}

// sampleThrottle tells when the CPU limit begins to hold s back, by the last sample, and
// when it no longer does.
func (h *host) sampleThrottle(ctx context.Context, s *sandbox) {
	r := s.kept()
	d := events.Data{Limit: "cpu"}
	if r.Main != 0 && r.Main != mainToCome {
		d.ExecID = number(r.Main)
	}
	change, use := s.meter.Throttled()
	switch change {
	case usage.Raised:
		d.Reason = observe.ThrottledReason(r.Limits.MilliCPU, use)
		h.log.Info("the CPU limit holds a sandbox back", "sandbox", s.id, "milli_cpu", r.Limits.MilliCPU, "throttled_periods", use.ThrottledPeriods, "periods", use.Periods)
		h.emit(ctx, r, events.LimitHit, d)
	case usage.Cleared:
		h.emit(ctx, r, events.LimitCleared, d)
	}
}

// tellsThrottled reports whether the end of e is to tell that it was held back.
func (e *execution) tellsThrottled() bool {
	e.s.mu.Lock()
	held := e.heldBack
	e.s.mu.Unlock()
	return held && (e.group() != nil || !e.s.meter.ToldThrottled())
}
