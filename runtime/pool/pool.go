package pool

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Config keeps sandboxes of one kind ready.
type Config struct {
	Profile string
	Image   string // empty is the profile's
	Size    int    // ready ones to keep
	Max     int    // that it may grow to; not above Size is Size
}

// Pool is the sandboxes of one kind that wait for their request. Each serves one
// request and is not used again.
type Pool struct {
	cfg  Config
	wake chan struct{}       // asks the filler to look
	like *plan.CreateRequest // of an adaptive pool: what its sandboxes are made like
	key  kind                // of an adaptive pool, for its whole life

	mu       sync.Mutex
	kind     kind
	demand   demand
	ready    []Sandbox
	filling  int
	hits     int64
	misses   int64
	failures int64
	refills  []time.Duration // the latest
	asked    time.Time       // when a sandbox was last asked for
	paused   bool            // the host is short of memory, or its image is gone
	trouble  sbxerr.Code     // why it could not be filled, as was last logged
}

// maxRefills is how many times of making are kept for the median.
const maxRefills = 64

// Causes of the end of a ready sandbox.
var (
	ErrOutdated = errors.New("its image or profile is removed or replaced")
	ErrSpoiled  = errors.New("it could not be made what was asked for")
	errShort    = errors.New("the host is short of memory")
	errSurplus  = errors.New("its pool has shrunk")
)

func newPool(cfg Config) *Pool {
	return &Pool{cfg: cfg, demand: newDemand(cfg.Size, cfg.Max), wake: make(chan struct{}, 1)}
}

// Take removes a ready sandbox that can become p from the pool; nil if there is none. The
// caller tells Used what became of it.
func (p *Pool) Take(wanted *plan.Sandbox) Sandbox {
	k := kindOf(wanted)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kind != k {
		return nil
	}
	p.asked = time.Now()
	for len(p.ready) > 0 {
		s := p.ready[0]
		p.ready = p.ready[1:]
		if s.Usable() {
			return s
		}
	}
	p.misses++
	p.demand = p.demand.miss(time.Now())
	p.refill()
	return nil
}

// Used counts a sandbox that was taken, and whether it served.
func (p *Pool) Used(served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if served {
		p.hits++
	} else {
		p.misses++
	}
	p.refill()
}

// rested notes what a look at the host has found.
func (p *Pool) rested(k kind, short bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.kind = short, k
	p.ready = slices.DeleteFunc(p.ready, Sandbox.Ended)
	p.demand = p.demand.rest(time.Now(), p.asked)
}

// trim ends what is more than p is to have, and reports whether there was anything.
func (p *Pool) trim(goal int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	surplus := len(p.ready) > goal
	for len(p.ready) > goal {
		last := len(p.ready) - 1
		p.ready[last].End(errSurplus)
		p.ready = p.ready[:last]
	}
	return surplus
}

// troubled reports whether cause is news.
func (p *Pool) troubled(cause sbxerr.Code) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.trouble != cause
	p.trouble = cause
	return news
}

// empty ends what is ready in p, and lets nothing be added until it is inspected
// again.
func (p *Pool) empty(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReadyLocked(cause)
	p.kind, p.paused, p.demand = kind{}, true, newDemand(p.cfg.Size, p.cfg.Max)
}

func (p *Pool) endReadyLocked(cause error) {
	for _, s := range p.ready {
		s.End(cause)
	}
	p.ready = nil
}

func (p *Pool) differs(k kind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind != k
}

// wants reports whether p is to be filled.
func (p *Pool) wants(goal int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.paused && len(p.ready)+p.filling < goal
}

// request returns what the sandboxes of p are made like.
func (p *Pool) request() plan.CreateRequest {
	r := plan.CreateRequest{Profile: p.cfg.Profile, Image: p.cfg.Image}
	if p.like != nil {
		r = *p.like
	}
	r.Pooled = true
	return r
}

// serves reports whether p, which is configured, is for requests of the kind k. One that
// was not looked at yet serves its profile.
func (p *Pool) serves(k kind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind == k || p.kind == kind{} && cmp.Or(p.cfg.Profile, plan.DefaultProfile) == k.profile
}

// over reports whether p, which is adaptive, is of no more use.
func (p *Pool) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind != p.key || p.demand.want == 0 && time.Since(p.asked) >= warmTime
}

// drop ends what is ready in p and returns it. A later miss fills p again.
func (p *Pool) drop(cause error) []Sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := p.ready
	p.endReadyLocked(cause)
	p.demand = newDemand(p.cfg.Size, p.cfg.Max)
	return ended
}

func (p *Pool) lastAsked() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *Pool) target() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand.want
}

func (p *Pool) holds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) + p.filling
}

// goal returns how many sandboxes p is to hold, where so many more may be made of all.
func (p *Pool) goal(free, all int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand.goal(free+len(p.ready)+p.filling, all)
}

// begin counts one that is being made.
func (p *Pool) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling++
}

// filled puts in s, which was being made, or counts that making it failed.
func (p *Pool) filled(s Sandbox, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling--
	if err != nil {
		p.failures++
		return
	}
	p.trouble = ""
	if k := kindOf(s.Plan()); k != p.kind { // it was replaced since the last look
		p.endReadyLocked(ErrOutdated)
		p.kind = k
	}
	p.ready = append(p.ready, s)
	p.demand = p.demand.ready(len(p.ready))
	p.refills = append(p.refills, took)
	if len(p.refills) > maxRefills {
		p.refills = p.refills[1:]
	}
}

// rest returns how long nothing is to be made for p.
func (p *Pool) rest(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fillRest - now.Sub(p.asked)
}

func (p *Pool) refill() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Pool) stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Stats{
		Profile: cmp.Or(p.cfg.Profile, plan.DefaultProfile), Image: p.cfg.Image, Ready: len(p.ready), Filling: p.filling, Size: p.cfg.Size, Target: p.demand.want, Max: p.demand.max,
		Hits: p.hits, Misses: p.misses, Failures: p.failures,
	}
	if n := len(p.refills); n > 0 {
		sorted := slices.Sorted(slices.Values(p.refills))
		st.Refill = sorted[n/2]
	}
	return st
}
