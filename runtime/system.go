package runtime

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/capacity"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pool"
	"github.com/caisson-run/caisson/runtime/queue"
	"github.com/caisson-run/caisson/runtime/spend"
)

// Inspect returns all that is known of the sandbox that ref names.
func (m *Manager) Inspect(ctx context.Context, ref string) (*Detail, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := m.refreshPosture(ctx, s); err != nil {
		return nil, err
	}
	r := s.kept()
	d := &Detail{
		Info: s.info(), Limits: r.Limits, Cgroup: m.cgroupPath(r.ID), ImageDigest: r.ImageDigest,
		HostIDSize: idblock.Size, AllowECH: r.Policy.AllowECH, Routes: slices.Sorted(maps.Keys(r.Policy.Routes)),
	}
	var silent error
	if d.Egress, silent = m.egressNow(ctx, r); errors.Is(silent, sbxerr.EgressBusy) {
		silent = nil // what is told later is no failure
	}
	if err := cmp.Or(m.networkFailure(s), silent); err != nil {
		d.NetworkFailure = err.Error()
	}
	return d, s.detail(d)
}

// Versions says what is running.
func (m *Manager) Versions(ctx context.Context) (Versions, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckHost); err != nil {
		return Versions{}, err
	}
	return m.opts.Versions(ctx)
}

// CheckAdmin refuses callers that may not do what is an operator's.
func CheckAdmin(ctx context.Context, m *Manager) error { return m.permit(ctx, peer.Grant.CheckAdmin) }

// Ready is why nothing can be run now; nil if something can. Every caller may know.
func (m *Manager) Ready(ctx context.Context) error {
	if _, err := peer.Require(ctx); err != nil {
		return err
	}
	if m.leaving.Err() != nil || m.isClosed() {
		return m.leaveCause()
	}
	return m.opts.Ready(ctx)
}

// Leaving is closed when calls that wait for something end, as the daemon does.
func (m *Manager) Leaving() <-chan struct{} { return m.leaving.Done() }

// Doctor says what would fail on this host, and how to mend it.
func (m *Manager) Doctor(ctx context.Context) ([]Check, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckAdmin); err != nil {
		return nil, err
	}
	checks, err := m.opts.Doctor(ctx)
	return slices.Concat(checks, memoryChecks(m.memory.Uncounted()), m.quarantine.checks()), err
}

// Capabilities says how each field of a request is honoured on this host.
func (m *Manager) Capabilities(ctx context.Context) ([]Capability, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckHost); err != nil {
		return nil, err
	}
	return m.opts.Capabilities(ctx)
}

// Counts is what the daemon counts of the whole host, without a word of others.
type Counts struct {
	Sandboxes map[State]int // without those in pools
	Pooled    int
	Orphaned  int           // sandboxes that nobody knows of which something is left, by the last look
	Skipped   int           // leftovers that could not be removed, orphans among them, and foreign files
	Execs     int           // that run
	Queued    int           // requests that wait for their turn to make a sandbox
	Throttled time.Duration // that limits of CPU held sandboxes back since the start, summed over CPUs
	Pools     []pool.Stats
	Routes    map[string]spend.Amount // by route: what requests took since the start
}

// Counts returns how the daemon does.
func (m *Manager) Counts() Counts {
	c := Counts{Sandboxes: map[State]int{}, Orphaned: m.quarantine.orphaned(), Skipped: m.quarantine.size(), Queued: waiting(m.making, m.running), Throttled: time.Duration(m.throttled.Load()), Routes: m.opts.Spending.Routes(), Pools: m.pools.Stats()}
	for _, s := range m.all() {
		info := s.info()
		if s.kept().Pooled {
			c.Pooled++
			continue
		}
		c.Sandboxes[info.State]++
		c.Execs += info.Execs
	}
	return c
}

// waiting is how many requests wait for their turn in queues.
func waiting(queues ...*queue.Queue) (n int) {
	for _, g := range queues {
		n += g.Waiting()
	}
	return n
}

// HostInfo returns what the daemon counts of what the caller may see.
func (m *Manager) HostInfo(ctx context.Context) (HostInfo, error) {
	st := HostInfo{Sandboxes: map[State]int{}, Pools: []pool.Stats{}}
	visible, err := m.visible(ctx)
	if err != nil {
		return HostInfo{}, err
	}
	for _, s := range visible {
		info := s.info()
		st.Sandboxes[info.State]++
		st.Execs += info.Execs
	}
	st.Networks = m.networkStats(ctx, visible)
	g, err := m.grant(ctx)
	if err == nil {
		m.mu.Lock()
		now := m.standingLocked(g)
		m.mu.Unlock()
		host := capacity.Host{Root: m.paths.root, DiskReserve: m.opts.DiskReserve, Sandboxes: m.opts.MaxSandboxes, ForRoot: m.opts.ForRoot}
		st.Capacity, st.Available, err = host.Of(g, now)
	}
	if err != nil || g.CheckHost() != nil { // who waits, and pools, are the host's affair
		return st, err
	}
	st.Queued, st.Pools = waiting(m.making, m.running), m.pools.Stats()
	return st, nil
}
