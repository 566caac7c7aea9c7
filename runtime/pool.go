package runtime

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// PoolConfig keeps sandboxes of one kind ready.
type PoolConfig struct {
	Profile string
	Image   string // empty is the profile's
	Size    int    // ready ones to keep
	Max     int    // that it may grow to; not above Size is Size
}

// pool is the sandboxes of one kind that wait for their request. Each serves one
// request and is not used again.
type pool struct {
	cfg  PoolConfig
	wake chan struct{}       // asks the filler to look
	like *plan.CreateRequest // of an adaptive pool: what its sandboxes are made like
	key  kind                // of an adaptive pool, for its whole life

	mu       sync.Mutex
	kind     kind
	demand   demand
	ready    []*sandbox
	filling  int
	hits     int64
	misses   int64
	failures int64
	refills  []time.Duration // the latest
	asked    time.Time       // when a sandbox was last asked for
	paused   bool            // the host is short of memory, or its image is gone
	trouble  sbxerr.Code     // why it could not be filled, as was last logged
}

// kind is what cannot be changed in a sandbox that was made: a request takes one
// of its own kind only.
type kind struct {
	profile, seccomp, image, network string
	user                             string
	limits                           settings.Limits
	mountPoint, homes, hostname      string // that no other sandbox has
	build, ownWorkspace, writable    bool
}

// kindOf returns the kind of sandbox that p asks for. The other limits can be changed.
func kindOf(p *plan.Sandbox) kind {
	return kind{
		profile: p.ProfileName, seccomp: p.Seccomp.Name, image: p.Image.Digest, network: string(p.Network), user: p.User.String(),
		limits:     settings.Limits(p.Limits).Kind(),
		mountPoint: strings.Join(p.MountPoints(), ""), homes: p.HomesText(), hostname: p.Request.Hostname, build: p.Request.Build, ownWorkspace: p.OwnWorkspace, writable: p.WritableRoot,
	}
}

// maxRefills is how many times of making are kept for the median.
const maxRefills = 64

var (
	errOutdated = errors.New("its image or profile is removed or replaced")
	errShort    = errors.New("the host is short of memory")
	errSurplus  = errors.New("its pool has shrunk")
	errSpoiled  = errors.New("it could not be made what was asked for")
)

func newPools(configs []PoolConfig) (pools []*pool) {
	for _, cfg := range configs {
		pools = append(pools, &pool{cfg: cfg, demand: newDemand(cfg.Size, cfg.Max), wake: make(chan struct{}, 1)})
	}
	return pools
}

// StartPools begins to fill the pools, and the stock of network namespaces. They go on until Close, before which it
// has returned.
func (m *Manager) StartPools(ctx context.Context) {
	ctx, m.stopFilling = context.WithCancel(peer.NewContext(context.WithoutCancel(ctx), peer.System))
	for _, p := range m.pools {
		m.fillers.Go(func() { m.fill(ctx, p) })
	}
	m.adaptive.start(ctx)
	m.fillers.Go(func() { m.fillStock(ctx) })
}

// stopPools ends the filling; the sandboxes that wait are ended like all others.
func (m *Manager) stopPools() error {
	m.adaptive.stop()
	if m.stopFilling != nil {
		m.stopFilling()
	}
	m.fillers.Wait()
	return m.stock.Close()
}

// inspectPool drops what is of no more use: sandboxes of an image or profile that was
// replaced, and all of them when the host is short of memory.
func (m *Manager) inspectPool(ctx context.Context, p *pool) {
	short := m.shortOfMemory()
	plan, err := m.planFor(ctx, p.request())
	if err != nil {
		if p.like == nil {
			m.complain(p, "plan pool", err)
		}
		p.empty(errOutdated)
		return
	}
	k := kindOf(plan)
	switch {
	case short:
		p.empty(errShort)
	case p.differs(k):
		p.empty(errOutdated)
	}
	p.rested(k, short)
	if p.trim(m.goal(p)) {
		m.adaptive.look()
	}
}

// rested notes what a look at the host has found.
func (p *pool) rested(k kind, short bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.kind = short, k
	p.ready = slices.DeleteFunc(p.ready, func(s *sandbox) bool { return s.endCause() != nil })
	p.demand = p.demand.rest(time.Now(), p.asked)
}

// trim ends what is more than p is to have, and reports whether there was anything.
func (p *pool) trim(goal int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	surplus := len(p.ready) > goal
	for len(p.ready) > goal {
		last := len(p.ready) - 1
		p.ready[last].end(errSurplus)
		p.ready = p.ready[:last]
	}
	return surplus
}

// complain logs why p is not filled, once until the cause is another, as far as
// its code tells, or p was filled meanwhile.
func (h *host) complain(p *pool, what string, err error) {
	if p.troubled(sbxerr.Of(err)) {
		h.log.Warn(what, "profile", p.cfg.Profile, "image", p.cfg.Image, "err", err)
		d := events.Data{Profile: p.cfg.Profile, Image: p.cfg.Image}
		d.Tell(err)
		h.opts.Events.Emit(peer.NewContext(context.Background(), peer.System), events.Event{Type: events.PoolFailed, Scope: events.Scope{Host: true}, Data: d})
	}
}

// troubled reports whether cause is news.
func (p *pool) troubled(cause sbxerr.Code) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.trouble != cause
	p.trouble = cause
	return news
}

// empty ends what is ready in p, and lets nothing be added until it is inspected
// again.
func (p *pool) empty(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReadyLocked(cause)
	p.kind, p.paused, p.demand = kind{}, true, newDemand(p.cfg.Size, p.cfg.Max)
}

func (p *pool) endReadyLocked(cause error) {
	for _, s := range p.ready {
		s.end(cause)
	}
	p.ready = nil
}

func (p *pool) differs(k kind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind != k
}

// shortOfMemory reports whether ready sandboxes are a luxury on this host now.
func (h *host) shortOfMemory() bool {
	host, err := cgroups.Pressure()
	return err == nil && host.Available < host.Total/100*shortMemory
}

// room returns how many more sandboxes may be made, and how many may live.
func (m *Manager) room() (free, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = m.opts.MaxSandboxes - m.opts.ForRoot
	return all - len(m.sandboxes), all
}

// goal returns how many sandboxes p is to hold, in the room that there is.
func (m *Manager) goal(p *pool) int {
	free, all := m.room()
	share := m.adaptive.share(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(share, p.demand.goal(free+len(p.ready)+p.filling, all))
}

// wants reports whether p is to be filled.
func (p *pool) wants(goal int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.paused && len(p.ready)+p.filling < goal
}

// request returns what the sandboxes of p are made like.
func (p *pool) request() plan.CreateRequest {
	r := plan.CreateRequest{Profile: p.cfg.Profile, Image: p.cfg.Image}
	if p.like != nil {
		r = *p.like
	}
	r.Pooled = true
	return r
}

// serves reports whether p, which is configured, is for requests of the kind k. One that
// was not looked at yet serves its profile.
func (p *pool) serves(k kind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind == k || p.kind == kind{} && cmp.Or(p.cfg.Profile, plan.DefaultProfile) == k.profile
}

// over reports whether p, which is adaptive, is of no more use.
func (p *pool) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind != p.key || p.demand.want == 0 && time.Since(p.asked) >= warmTime
}

// drop ends what is ready in p and returns it. A later miss fills p again.
func (p *pool) drop(cause error) []*sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := p.ready
	p.endReadyLocked(cause)
	p.demand = newDemand(p.cfg.Size, p.cfg.Max)
	return ended
}

func (p *pool) lastAsked() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *pool) target() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand.want
}

func (p *pool) holds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) + p.filling
}

// take removes a ready sandbox from p if it is of the kind k. What becomes of it is
// told to used.
func (p *pool) take(k kind) *sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kind != k {
		return nil
	}
	p.asked = time.Now()
	for len(p.ready) > 0 {
		s := p.ready[0]
		p.ready = p.ready[1:]
		if s.endCause() == nil && s.init.Err() == nil {
			return s
		}
	}
	p.misses++
	p.demand = p.demand.miss(time.Now())
	p.refill()
	return nil
}

// used counts a sandbox that was taken, and whether it served.
func (p *pool) used(served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if served {
		p.hits++
	} else {
		p.misses++
	}
	p.refill()
}

// rest returns how long nothing is to be made for p.
func (p *pool) rest(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fillRest - now.Sub(p.asked)
}

func (p *pool) refill() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// statsOf returns what p counts, with the image that its requests have.
func (h *host) statsOf(p *pool) PoolStats {
	st := p.stats()
	st.Image = cmp.Or(st.Image, h.settings().Profiles[st.Profile].Image)
	return st
}

func (p *pool) stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := PoolStats{
		Profile: cmp.Or(p.cfg.Profile, plan.DefaultProfile), Image: p.cfg.Image, Ready: len(p.ready), Filling: p.filling, Size: p.cfg.Size, Target: p.demand.want, Max: p.demand.max,
		Hits: p.hits, Misses: p.misses, Failures: p.failures,
	}
	if n := len(p.refills); n > 0 {
		sorted := slices.Sorted(slices.Values(p.refills))
		st.Refill = sorted[n/2]
	}
	return st
}
