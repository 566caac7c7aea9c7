package runtime

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
)

// adaptivePools are pools that nobody configured: one for each kind of sandbox that was
// lately asked for. They follow the demand down to nothing.
type adaptivePools struct {
	max int // ready sandboxes of all of them together; 0 is none

	mu      sync.Mutex
	filling context.Context // nil while no pool may be filled
	pools   []*pool
}

// poolsFor returns the pools that p may be served from. The first request of a kind that
// no pool serves begins one.
func (m *Manager) poolsFor(p *plan.Sandbox) []*pool {
	k := kindOf(p)
	if slices.ContainsFunc(m.pools, func(q *pool) bool { return q.serves(k) }) {
		return m.pools
	}
	if q := m.adaptive.find(k); q != nil {
		return []*pool{q}
	}
	return m.beginPool(k, p)
}

func (a *adaptivePools) find(k kind) *pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.pools, func(q *pool) bool { return q.key == k }); i >= 0 {
		return a.pools[i]
	}
	return nil
}

// beginPool begins an adaptive pool for requests such as p, if their kind can be made ahead:
// the image is root's, since the daemon makes it, and the mode needs nothing of one request.
func (m *Manager) beginPool(k kind, p *plan.Sandbox) []*pool {
	a := &m.adaptive
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.max == 0 || a.filling == nil || p.Image.Owner != 0 || p.Network == netns.ModeBridge || k.mountPoint != "" || k.hostname != "" || k.build || hidden(k, p) || p.Profile.Unisolated != nil {
		return nil
	}
	r := p.Request
	like := &plan.CreateRequest{
		Profile: p.ProfileName, Image: p.Image.Name, Rootfs: r.Rootfs, User: r.User, Network: string(p.Network),
		Limits: settings.KindOf(r.Limits),
	}
	q := &pool{
		cfg: PoolConfig{Profile: p.ProfileName, Image: p.Image.Name, Max: a.max}, like: like, key: k, kind: k,
		demand: newDemand(0, a.max), asked: time.Now(), wake: make(chan struct{}, 1),
	}
	a.pools = append(a.pools, q)
	ctx := a.filling
	m.fillers.Go(func() { m.fill(ctx, q) })
	return []*pool{q}
}

// start lets pools begin; they are filled until ctx ends.
func (a *adaptivePools) start(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.filling = ctx
}

// stop lets no further pool begin.
func (a *adaptivePools) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.filling = nil
}

// list returns the pools that there are.
func (a *adaptivePools) list() []*pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.pools)
}

// retire drops q if nobody asked for its kind lately, or if there is no such kind any
// more. It reports whether it did.
func (a *adaptivePools) retire(q *pool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.like == nil || !q.over() {
		return false
	}
	q.drop(errOutdated)
	a.pools = slices.DeleteFunc(a.pools, func(p *pool) bool { return p == q })
	return true
}

// share returns how many sandboxes q may hold. The pools get one each in turn, those that
// were asked for last first, until each has what it wants or all are given away. What others
// still hold above their share counts as theirs.
func (a *adaptivePools) share(q *pool) int {
	if q.like == nil {
		return math.MaxInt
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	order := slices.Clone(a.pools)
	slices.SortStableFunc(order, func(x, y *pool) int { return y.lastAsked().Compare(x.lastAsked()) })
	shares, left, held := map[*pool]int{}, a.max, 0
	for given := true; given; {
		given = false
		for _, p := range order {
			if left > 0 && shares[p] < p.target() {
				shares[p]++
				left--
				given = true
			}
		}
	}
	for _, p := range order {
		if p == q {
			continue
		}
		n := p.holds()
		if held += n; n > shares[p] {
			p.refill() // its filler gives back what is too much
		}
	}
	return min(shares[q], max(0, a.max-held))
}

// look has every filler look at its pool, since there may be room for it.
func (a *adaptivePools) look() {
	for _, p := range a.list() {
		p.refill()
	}
}

// giveBack ends what waits in adaptive pools, for a request that finds no room, and reports
// whether there was anything.
func (m *Manager) giveBack(ctx context.Context) bool {
	var ended []*sandbox
	for _, p := range m.adaptive.list() {
		ended = append(ended, p.drop(errSurplus)...)
	}
	for _, s := range ended {
		if wait(ctx, s.gone) != nil {
			return false
		}
	}
	return len(ended) > 0
}

// poolStats returns what the pools count, summed up for each profile and image.
func (m *Manager) poolStats() []PoolStats {
	list := []PoolStats{}
	for _, p := range slices.Concat(m.pools, m.adaptive.list()) {
		st := m.statsOf(p)
		i := slices.IndexFunc(list, func(o PoolStats) bool { return o.Profile == st.Profile && o.Image == st.Image })
		if i < 0 {
			list = append(list, st)
			continue
		}
		o := &list[i]
		o.Ready, o.Filling, o.Size, o.Target, o.Max = o.Ready+st.Ready, o.Filling+st.Filling, o.Size+st.Size, o.Target+st.Target, max(o.Max, st.Max)
		o.Hits, o.Misses, o.Failures, o.Refill = o.Hits+st.Hits, o.Misses+st.Misses, o.Failures+st.Failures, cmp.Or(o.Refill, st.Refill)
	}
	return list
}
