package runtime

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
)

// EgressCounters counts what went through the gateway for one sandbox.
type EgressCounters struct {
	Open            int64 `json:"open"` // connections now
	Allowed         int64 `json:"allowed"`
	Refused         int64 `json:"refused"`
	Failed          int64 `json:"failed"` // allowed, but the destination was not to be had
	SentBytes       int64 `json:"sent_bytes"`
	ReceivedBytes   int64 `json:"received_bytes"`
	LookupsAnswered int64 `json:"lookups_answered"`
	LookupsRefused  int64 `json:"lookups_refused"`
	Lost            int64 `json:"lost"` // attempts of which nothing is known: they ended with a gateway, or were too many
}

// countTimeout is how long somebody waits for what the gateway has not told yet.
const countTimeout = time.Second

// refreshEgress has the gateway tell all that happened until now. One that does
// not in time is being replaced: what was told before is all there is to know.
func (m *Manager) refreshEgress(ctx context.Context) {
	if m.opts.Egress == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	if err := m.opts.Egress.Refresh(ctx); err != nil {
		m.log.Debug("refresh the gateway's counters", "err", err)
	}
}

// egressOf is what went through the gateway for a sandbox as far as it was told:
// connections that are over some milliseconds after their end, those that are open
// every two seconds, and all of it after refreshEgress. It is nil for a sandbox that
// has nothing to do with the gateway. Nobody is asked: results of commands in
// sessions do not wait for another process.
func (m *Manager) egressOf(r record) *EgressCounters {
	if !counts(r.Network) || m.opts.Egress == nil {
		return nil
	}
	c, ok := m.opts.Egress.Counters(r.ID)
	if !ok {
		return nil
	}
	return countersOf(c)
}

// networkStats are the counters of those sandboxes that have some. The gateway is
// asked once for all.
func (m *Manager) networkStats(ctx context.Context, sandboxes []*sandbox) []NetworkStats {
	list := []NetworkStats{}
	if !slices.ContainsFunc(sandboxes, func(s *sandbox) bool { return counts(s.kept().Network) }) {
		return list
	}
	m.refreshEgress(ctx)
	for _, s := range sandboxes {
		r := s.kept()
		if c := m.egressOf(r); c != nil {
			list = append(list, NetworkStats{SandboxID: r.ID, Name: r.Name, Network: string(r.Network), Egress: *c})
		}
	}
	return list
}

// counts reports whether the gateway sees what a sandbox of this mode sends.
func counts(mode netns.Mode) bool { return mode == netns.ModeAllow || mode == netns.ModeOpen }

func countersOf(c egress.Counters) *EgressCounters {
	return &EgressCounters{
		Open: int64(c.Open), Allowed: count(c.Allowed), Refused: count(c.Refused), Failed: count(c.Failed),
		SentBytes: count(c.Sent), ReceivedBytes: count(c.Received), LookupsAnswered: count(c.Answered), LookupsRefused: count(c.Denied), Lost: count(c.Lost),
	}
}

func count(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
