package runtime

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/observe"
)

// SandboxStats is what one sandbox uses. Of one that has ended, it is what it used in all.
// A value that the host does not count is nil.
type SandboxStats struct {
	SandboxID        string
	Name             string
	State            State
	CPUPercent       float64       // of the last second; 100 is one CPU
	CPU              time.Duration // so far, of all CPUs
	MilliCPU         int64         // limit
	MemoryBytes      int64         // with the page cache
	PeakMemoryBytes  *int64
	MemoryLimitBytes int64
	PIDs             int64 // tasks, that is processes and threads
	PIDsLimit        int64
	Processes        *int64
	IOReadBytes      *int64 // from block devices
	IOWriteBytes     *int64 // to them; nil with cgroup v1
	SentBytes        int64
	ReceivedBytes    int64
	CPUPressure      *float64 // percent of the last 10 s in which a process waited
	MemoryPressure   *float64
	IOPressure       *float64
}

// StatsSelection says which sandboxes Stats tells of: those of Refs, or else the live ones
// that Takes takes.
type StatsSelection struct {
	Refs  []string
	Takes func(Info) bool // nil takes all
}

// Stats calls yield with what the selected sandboxes use, the oldest first, and with
// follow again each second. Then it ends with ctx, or when all of Refs have ended.
func (m *Manager) Stats(ctx context.Context, sel StatsSelection, follow bool, yield func(time.Time, []SandboxStats) error) error {
	named, err := m.named(ctx, sel.Refs)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.leaving, func() { cancel(m.leaveCause()) })()
	tick := time.NewTicker(observe.Interval)
	defer tick.Stop()
	for {
		list, live, err := m.statsNow(ctx, named, sel)
		if err != nil {
			return err
		}
		if err := yield(time.Now(), list); err != nil {
			return err
		}
		if !follow || named != nil && live == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// named are the sandboxes of refs, each once; nil if there are no refs.
func (m *Manager) named(ctx context.Context, refs []string) (list []*sandbox, err error) {
	seen := map[*sandbox]bool{}
	for _, ref := range refs {
		s, err := m.find(ctx, ref)
		if err != nil {
			return nil, err
		}
		if !seen[s] {
			seen[s], list = true, append(list, s)
		}
	}
	return list, nil
}

func (m *Manager) statsNow(ctx context.Context, named []*sandbox, sel StatsSelection) (list []SandboxStats, live int, err error) {
	defer m.Busy()()
	all := named
	if named == nil {
		if all, err = m.visible(ctx); err != nil {
			return nil, 0, err
		}
	}
	list = make([]SandboxStats, 0, len(all))
	for _, s := range all {
		measured := s.isMeasured()
		if named == nil && (!measured || sel.Takes != nil && !sel.Takes(s.info())) {
			continue
		}
		if measured {
			live++
		}
		list = append(list, m.statsOfSandbox(s))
	}
	return list, live, nil
}

func (h *host) statsOfSandbox(s *sandbox) SandboxStats {
	now, cpu := s.meter.Used(metered{h, s}, s.isMeasured())
	u := now.Last
	r, state := s.kept(), s.currentState()
	var stall cgroups.Stall
	if g, err := h.group(s.id); err == nil {
		stall = g.Stall()
	}
	return SandboxStats{
		SandboxID: r.ID, Name: r.Name, State: state, CPUPercent: cpu, CPU: u.CPU, MilliCPU: r.Limits.MilliCPU,
		MemoryBytes: u.MemoryBytes, PeakMemoryBytes: ifKnown(u.MemoryPeakBytes), MemoryLimitBytes: r.Limits.MemoryBytes,
		PIDs: u.PIDs, PIDsLimit: r.Limits.PIDs, Processes: h.processes(s), IOReadBytes: ifKnown(u.IOReadBytes), IOWriteBytes: ifKnown(u.IOWriteBytes),
		SentBytes: now.Point.SentBytes, ReceivedBytes: now.Point.ReceivedBytes,
		CPUPressure: stall.CPU, MemoryPressure: stall.Memory, IOPressure: stall.IO,
	}
}

// processes counts those of s: none when it has ended, nil where they cannot be read. It is
// read when it is asked for, and not with each sample: every process adds to its cost.
func (h *host) processes(s *sandbox) *int64 {
	n := int64(0)
	if !s.isMeasured() {
		return &n
	}
	g, err := h.group(s.id)
	if err == nil {
		n, err = g.Processes()
	}
	if err != nil {
		h.log.Debug("count the processes of a sandbox", "sandbox", s.id, "err", err)
		return nil
	}
	return &n
}

func (s *sandbox) currentState() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func ifKnown(r cgroups.Reading) *int64 {
	if !r.Known {
		return nil
	}
	return &r.N
}

// History is what a sandbox used over time.
type History struct {
	SandboxID        string
	Name             string
	State            State
	MemoryLimitBytes int64
	MilliCPU         int64
	PIDsLimit        int64
	Samples          []observe.Sample // oldest first
	CreatedAt        time.Time
	// Of one that is gone alone:
	Image   string
	EndedAt time.Time
	Execs   []ExecInfo // the last commands, oldest first, with the beginning of their arguments
}

// History returns what the sandbox that ref names used, also of one that is gone as far as
// that is kept.
func (m *Manager) History(ctx context.Context, ref string) (*History, error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	s, err := m.find(ctx, ref)
	if err != nil {
		return m.pastHistory(g, ref, err)
	}
	r := s.kept()
	return &History{
		SandboxID: r.ID, Name: r.Name, State: s.currentState(), CreatedAt: r.CreatedAt,
		MemoryLimitBytes: r.Limits.MemoryBytes, MilliCPU: r.Limits.MilliCPU, PIDsLimit: r.Limits.PIDs,
		Samples: s.meter.Samples(metered{&m.host, s}),
	}, nil
}
