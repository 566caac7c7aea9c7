package runtime

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/spend"
)

// EgressCounters counts what went through the gateway for one sandbox. In the mode bridge
// Refused counts packets that the namespace's rules refused, the bytes are those that
// crossed the sandbox's link, headers included, and nothing else counts but Lost. In the
// mode none Refused counts attempts to leave, and LookupsRefused datagrams to closed ports
// inside, as lookups are; nothing else counts. In every mode the bytes hold those of
// connections through published ports that are over.
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

	// Of requests by routes that are over, with those of the sandboxes made inside.
	Requests     int64   `json:"requests,omitempty"`
	InputTokens  int64   `json:"input_tokens,omitempty"`
	OutputTokens int64   `json:"output_tokens,omitempty"`
	Cost         float64 `json:"cost,omitempty"`
}

// countTimeout is how long somebody waits for what the gateway has not told yet.
const countTimeout = time.Second

// execCountTimeout is how long the result of a command of a session waits for it: a gateway
// that hangs is replaced, and each command until then would wait.
const execCountTimeout = 300 * time.Millisecond

// refreshEgress has the gateway tell all that happened until now to a sandbox, or for an
// empty id to all. The code is sbxerr.EgressBusy where that was too much to wait for. One
// that does not answer in time is being replaced: what was told before is all there is to
// know.
func (h *host) refreshEgress(ctx context.Context, id string) error {
	if h.opts.Egress == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	err := h.opts.Egress.Refresh(ctx, id)
	if err != nil {
		h.log.Debug("refresh the gateway's counters", "err", err)
	}
	return err
}

// egressOf is what went through the gateway for a sandbox as far as it was told:
// connections that are over some milliseconds after their end, those that are open
// every two seconds, and all of it after refreshEgress. It is nil for a sandbox that
// has nothing to do with the gateway. No other process is asked.
func (h *host) egressOf(r record) *EgressCounters {
	c, err := h.countersOf(r)
	if err != nil {
		h.log.Debug("count the bytes of a link", "sandbox", r.ID, "err", err)
	}
	return c
}

func (h *host) countersOf(r record) (*EgressCounters, error) {
	if !h.isSeen(r) {
		return nil, nil
	}
	v, ok := h.opts.Egress.View(r.ID)
	if !ok {
		return nil, nil
	}
	c := countersOf(v.Counters)
	if !counts(r.Network) {
		c = &EgressCounters{SentBytes: c.SentBytes, ReceivedBytes: c.ReceivedBytes, Lost: c.Lost}
	}
	if len(r.Policy.Routes) > 0 {
		a := h.opts.Spending.Total(r.ID)
		c.Requests, c.InputTokens, c.OutputTokens, c.Cost = count(a.Requests), count(a.Tokens.Input), count(a.Tokens.Output), float64(a.Micros)/spend.Micro
	}
	return c, h.addLink(c, r)
}

// isSeen reports whether the gateway counts something for a sandbox.
func (h *host) isSeen(r record) bool {
	return h.opts.Egress != nil && (counts(r.Network) || len(r.Ports) > 0)
}

// addLink adds the bytes of the link of a sandbox of the mode bridge, which the kernel
// counts, whichever daemon runs.
func (h *host) addLink(c *EgressCounters, r record) error {
	if r.Network != netns.ModeBridge || h.opts.Bridge == nil {
		return nil
	}
	sent, received, err := h.opts.Bridge.Bytes(h.numberOf(r))
	c.SentBytes, c.ReceivedBytes = c.SentBytes+count(sent), c.ReceivedBytes+count(received)
	return err
}

// egressNow is egressOf when all was told that happened until now. In the mode none, in
// which nothing leads anywhere, the kernel counts what was tried: it is nil if nothing was,
// and nothing came in. An error is why not all was told; it is logged.
func (h *host) egressNow(ctx context.Context, r record) (*EgressCounters, error) {
	var c *EgressCounters
	var silent, err error
	if h.isSeen(r) {
		silent = h.refreshEgress(ctx, r.ID)
		c, err = h.countersOf(r)
	}
	if !counts(r.Network) && !isHosts(r.Network) {
		c = c.withUnrouted(h.unrouted(r.ID)[r.ID])
	}
	return c, cmp.Or(silent, err)
}

// withUnrouted is c, of a sandbox in the mode none, with what the kernel counted. It is nil
// where there is nothing of either.
func (c *EgressCounters) withUnrouted(tried *EgressCounters) *EgressCounters {
	switch {
	case c == nil || *c == EgressCounters{}:
		return tried
	case tried == nil:
		return c
	}
	sum := *c
	sum.Refused, sum.LookupsRefused = tried.Refused, tried.LookupsRefused
	return &sum
}

// unrouted is for sandboxes in the mode none. Those that tried nothing have no counters.
func (h *host) unrouted(ids ...string) map[string]*EgressCounters {
	var paths []string
	for _, id := range ids {
		paths = append(paths, h.paths.netns(id))
	}
	counters := map[string]*EgressCounters{}
	for i, c := range netns.Unrouted(paths...) {
		if c.Err != nil {
			h.log.Debug("count what a sandbox without a network tried", "sandbox", ids[i], "err", c.Err)
		}
		if c.N+c.Unheard > 0 {
			counters[ids[i]] = &EgressCounters{Refused: count(c.N), LookupsRefused: count(c.Unheard)}
		}
	}
	return counters
}

// networkFailure is why nothing of a sandbox gets out at the moment, or in, where
// it publishes; nil while it is served, has nothing to do with the gateway, or is an
// earlier daemon's that has not come back. In the mode bridge it is why no refusal is recorded.
func (h *host) networkFailure(s *sandbox) error {
	r := s.kept()
	if h.opts.Egress == nil || s.isOver() || s.awaited() || !counts(r.Network) && len(r.Ports)+len(r.Exposed) == 0 {
		return nil
	}
	v, ok := h.opts.Egress.View(r.ID)
	if !ok {
		return sbxerr.New(sbxerr.Gateway, "runtime.network", "the gateway does not know the sandbox")
	}
	return v.Failure
}

// networkStats are the counters of those sandboxes that have some. The gateway is
// asked once for all.
func (h *host) networkStats(ctx context.Context, sandboxes []*sandbox) []NetworkStats {
	list := []NetworkStats{}
	var none []string
	seen := false
	for _, s := range sandboxes {
		r := s.kept()
		if !counts(r.Network) && !isHosts(r.Network) {
			none = append(none, r.ID)
		}
		seen = seen || h.isSeen(r)
	}
	if seen {
		_ = h.refreshEgress(ctx, "") // it is logged
	}
	unrouted := h.unrouted(none...)
	for _, s := range sandboxes {
		r := s.kept()
		c := h.egressOf(r)
		if !counts(r.Network) {
			c = c.withUnrouted(unrouted[r.ID])
		}
		if c != nil {
			list = append(list, NetworkStats{SandboxID: r.ID, Name: r.Name, Network: string(r.Network), Egress: *c})
		}
	}
	return list
}

// counts reports whether the gateway sees what a sandbox of this mode sends, or is told.
func counts(mode netns.Mode) bool { return mode != netns.ModeNone && !isHosts(mode) }

func countersOf(c egress.Counters) *EgressCounters {
	return &EgressCounters{
		Open: int64(c.Open), Allowed: count(c.Allowed), Refused: count(c.Refused), Failed: count(c.Failed),
		SentBytes: count(c.Sent), ReceivedBytes: count(c.Received), LookupsAnswered: count(c.Answered), LookupsRefused: count(c.Denied), Lost: count(c.Lost),
	}
}

func count(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
