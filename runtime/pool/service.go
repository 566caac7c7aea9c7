// Package pool keeps sandboxes ready before anybody asks for them, and network namespaces
// for those that are made on request.
package pool

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Fleet is what pools need of the fleet.
type Fleet interface {
	Plan(context.Context, plan.CreateRequest) (*plan.Sandbox, error)
	// Make makes a sandbox, checked like any other, and starts a process in it once.
	Make(context.Context, *plan.Sandbox) (Sandbox, error)
	// Room returns how many more sandboxes may be made, and how many may live.
	Room() (free, all int)
	// Waiting reports whether a request waits for its turn to make a sandbox.
	Waiting() bool
	// ImageOf returns the image of a profile.
	ImageOf(profile string) string
}

// Sandbox is one that is ready.
type Sandbox interface {
	Plan() *plan.Sandbox
	End(cause error)
	Ended() bool           // or is to end
	Usable() bool          // it has not ended, and PID 1 answers
	Gone() <-chan struct{} // closed when nothing is left of it
}

// Stats is one pool of ready sandboxes.
type Stats struct {
	Profile  string
	Image    string
	Ready    int // sandboxes that wait
	Filling  int // sandboxes that are being made
	Size     int // how many it keeps ready
	Target   int // how many at the moment: more than Size after misses
	Max      int // how many at most
	Hits     int64
	Misses   int64
	Failures int64         // sandboxes that could not be made or did not pass their checks
	Refill   time.Duration // median time to make one
}

// Service is all pools of a host: those that are configured, and an adaptive one for each kind
// of sandbox that was lately asked for. Adaptive pools follow the demand down to nothing.
type Service struct {
	fleet      Fleet
	events     *events.Bus
	log        *slog.Logger
	configured []*Pool
	warm       int // ready sandboxes of all adaptive pools together; 0 is none
	fillers    sync.WaitGroup
	cancel     context.CancelFunc

	mu       sync.Mutex
	filling  context.Context // nil while no pool may be filled
	adaptive []*Pool
}

// New makes the pools of configs, and lets up to warm sandboxes wait in adaptive ones.
func New(configs []Config, warm int, fleet Fleet, bus *events.Bus, log *slog.Logger) *Service {
	s := &Service{fleet: fleet, events: bus, log: log, warm: warm, cancel: func() {}}
	for _, cfg := range configs {
		s.configured = append(s.configured, newPool(cfg))
	}
	return s
}

// Start begins to fill the pools. That goes on until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(peer.NewContext(context.WithoutCancel(ctx), peer.System))
	s.mu.Lock()
	s.filling = ctx
	s.mu.Unlock()
	for _, p := range s.configured {
		s.fillers.Go(func() { s.fill(ctx, p) })
	}
}

// Stop ends the filling. The sandboxes that wait go on to wait.
func (s *Service) Stop() {
	s.mu.Lock()
	s.filling = nil
	s.mu.Unlock()
	s.cancel()
	s.fillers.Wait()
}

// For returns the pools that p may be served from. The first request of a kind that
// no pool serves begins one.
func (s *Service) For(p *plan.Sandbox) []*Pool {
	k := kindOf(p)
	if slices.ContainsFunc(s.configured, func(q *Pool) bool { return q.serves(k) }) {
		return s.configured
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.adaptive, func(q *Pool) bool { return q.key == k }); i >= 0 {
		return s.adaptive[i : i+1 : i+1]
	}
	if s.warm == 0 || s.filling == nil || !canWait(k, p) {
		return nil
	}
	return []*Pool{s.beginLocked(k, p)}
}

// beginLocked begins an adaptive pool for requests such as p.
func (s *Service) beginLocked(k kind, p *plan.Sandbox) *Pool {
	q := newPool(Config{Profile: p.ProfileName, Image: p.Image.Name, Max: s.warm})
	q.key, q.kind, q.asked, q.like = k, k, time.Now(), likeOf(p)
	s.adaptive = append(s.adaptive, q)
	ctx := s.filling
	s.fillers.Go(func() { s.fill(ctx, q) })
	return q
}

// warmed returns the adaptive pools that there are.
func (s *Service) warmed() []*Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.adaptive)
}

// retire drops q if it is adaptive and nobody asked for its kind lately, or if there is no
// such kind any more. It reports whether it did.
func (s *Service) retire(q *Pool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.like == nil || !q.over() {
		return false
	}
	q.drop(ErrOutdated)
	s.adaptive = slices.DeleteFunc(s.adaptive, func(p *Pool) bool { return p == q })
	return true
}

// share returns how many sandboxes q may hold. The adaptive pools get one each in turn, those
// that were asked for last first, until each has what it wants or all are given away. What
// others still hold above their share counts as theirs.
func (s *Service) share(q *Pool) int {
	if q.like == nil {
		return math.MaxInt
	}
	order := s.warmed()
	slices.SortStableFunc(order, func(x, y *Pool) int { return y.lastAsked().Compare(x.lastAsked()) })
	shares, left, held := map[*Pool]int{}, s.warm, 0
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
	return min(shares[q], max(0, s.warm-held))
}

// goal returns how many sandboxes p is to hold, in the room that there is.
func (s *Service) goal(p *Pool) int {
	free, all := s.fleet.Room()
	return min(s.share(p), p.goal(free, all))
}

// Look has every filler look whether the sandboxes of its pool are still of the right kind.
func (s *Service) Look() {
	for _, p := range slices.Concat(s.configured, s.warmed()) {
		p.refill()
	}
}

// GiveBack ends what waits in adaptive pools, for a request that finds no room, and reports
// whether there was anything.
func (s *Service) GiveBack(ctx context.Context) bool {
	var ended []Sandbox
	for _, p := range s.warmed() {
		ended = append(ended, p.drop(errSurplus)...)
	}
	for _, b := range ended {
		select {
		case <-b.Gone():
		case <-ctx.Done():
			return false
		}
	}
	return len(ended) > 0
}

// Stats returns what the pools count, summed up for each profile and image. A pool without an
// image has its profile's.
func (s *Service) Stats() []Stats {
	list := []Stats{}
	for _, p := range slices.Concat(s.configured, s.warmed()) {
		st := p.stats()
		st.Image = cmp.Or(st.Image, s.fleet.ImageOf(st.Profile))
		i := slices.IndexFunc(list, func(o Stats) bool { return o.Profile == st.Profile && o.Image == st.Image })
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
