package runtime

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/usage"
)

const (
	sampleInterval = time.Second
	// cpuSpan is the least time over which a share of CPU is told: over less, one tick of
	// the scheduler shows as a peak.
	cpuSpan = 500 * time.Millisecond
)

// meter keeps what a sandbox used. The zero meter is ready.
type meter struct {
	mu      sync.Mutex
	began   time.Time // when the sandbox was made
	unknown bool      // what an earlier daemon measured
	series  usage.Series
	last    cgroups.Usage
	point   usage.Point // of last

	watches  watches
	throttle throttle
}

// measure reads what s uses and adds it to its series.
func (h *host) measure(s *sandbox) {
	t := &s.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.readLocked(s) {
		t.series.Add(t.point)
	}
}

// used returns what s used last and the use of CPU since the point before, at most a
// second old. An ended one has what it used in all.
func (h *host) used(s *sandbox) (u cgroups.Usage, p usage.Point, cpuPercent float64) {
	live, t := s.isMeasured(), &s.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	h.beginMeterLocked(s)
	if fresh := t.point.At > 0 && time.Since(t.began)-t.point.At < sampleInterval; live && (fresh || h.readLocked(s)) {
		return t.last, t.point, t.point.Since(t.series.Last(t.point.At, cpuSpan)).CPUPercent
	}
	u = t.last
	u.MemoryBytes, u.PIDs = 0, 0
	return u, t.point, 0
}

// readLocked reports whether there was something to read.
func (h *host) readLocked(s *sandbox) bool {
	r, t := s.kept(), &s.meter
	u, err := h.usage(s.id)
	if err != nil { // the cgroup is gone, or the host is out of descriptors
		h.log.Debug("measure a sandbox", "sandbox", s.id, "err", err)
		return false
	}
	h.countThrottledLocked(s, u.CPUUse)
	t.last = u
	t.point = usage.Point{At: time.Since(t.began), CPU: u.CPU, MemoryBytes: u.MemoryBytes, PIDs: u.PIDs, IORead: u.IOReadBytes.N, IOWrite: u.IOWriteBytes.N}
	if e := h.egressOf(r); e != nil {
		t.point.SentBytes, t.point.ReceivedBytes = e.SentBytes, e.ReceivedBytes
	}
	return true
}

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
		tick := time.NewTicker(sampleInterval)
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
			m.measure(s)
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
