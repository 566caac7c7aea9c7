package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/ratelog"
)

// Proxy carries the connections of one sandbox.
type Proxy struct {
	config Config
	rate   *rate.Limiter
	spare  ratelog.Log[attempt.Attempt] // ended at once by a limit
	seen   *seen
	room   *room
	peeks  chan struct{} // one for each client that is listened to
	heads  chan struct{} // one for each that has not finished a later head

	upstreams sync.WaitGroup // connections to upstreams of routes

	mu     sync.Mutex
	policy *policy.Policy
	flows  map[*flow]struct{} // every accepted connection that is not over
	closed bool
}

// New makes a Proxy that decides by p; nil lets nothing out.
func New(c Config, p *policy.Policy) (*Proxy, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	proxy := &Proxy{
		config: c, policy: p.On(c.Local), flows: map[*flow]struct{}{}, room: newRoom(), peeks: make(chan struct{}, maxPeeks), heads: make(chan struct{}, maxPeeks),
		rate: rate.NewLimiter(rate.Limit(c.Limits.NewPerSecond), c.Limits.NewBurst),
	}
	proxy.spare.Record = proxy.record
	proxy.seen = newSeen(proxy.config)
	return proxy, nil
}

// Policy returns the policy in force.
func (p *Proxy) Policy() *policy.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policy
}

// SetPolicy puts next in force, and ends the one before. When it returns, every
// connection that next does not allow is cut, also while it is being made: nothing more
// leaves for it.
func (p *Proxy) SetPolicy(next *policy.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = next.On(p.config.Local)
	defer p.policy.End()
	p.policy = next
	for f := range p.flows {
		if !f.wanted {
			continue // asks when it is known where it goes, or is refused already
		}
		d := p.decide(f, next)
		switch {
		case d.Allowed:
		case f.carried:
			f.cut(attempt.Cut, d)
		default:
			f.cut(attempt.Refused, d)
		}
	}
}

// Connections counts the connections that are being made or carried.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.flows)
}

// Serve accepts connections on l, which it closes, until ctx ends (the error is
// nil) or l fails. All connections are over when it returns. A Proxy serves
// once.
func (p *Proxy) Serve(ctx context.Context, l *net.TCPListener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()

	var all sync.WaitGroup
	all.Go(func() { watchIdle(ctx, p.config.Limits.Idle, p.cutIdle) })
	err := p.accept(ctx, l, &all)
	if ctx.Err() != nil {
		err = nil
	}
	cancel()
	p.end()
	all.Wait()
	p.upstreams.Wait()
	p.Flush()
	return sbxerr.Wrap(sbxerr.Gateway, "proxy.serve", err)
}

// Flush records what is over and has no record yet.
func (p *Proxy) Flush() {
	p.seen.flush()
	p.spare.Flush()
}

// acceptPause is how long a lack of descriptors or memory is waited out.
const acceptPause = 50 * time.Millisecond

func (p *Proxy) accept(ctx context.Context, l *net.TCPListener, all *sync.WaitGroup) error {
	return accept(ctx, l, func(c *net.TCPConn) {
		f, ok := p.begin(ctx, c)
		if !ok {
			p.spare.Suppress(p.tooMany(c))
			reset(c)
			return
		}
		all.Go(func() { p.run(f, all) })
	})
}

// accept calls begin with each connection that comes on l, until that is closed, or
// listens no more: root can end a listener from outside (sock_diag(7), SOCK_DESTROY).
func accept(ctx context.Context, l *net.TCPListener, begin func(*net.TCPConn)) error {
	for {
		c, err := l.AcceptTCP()
		if err == nil {
			begin(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EINVAL) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(acceptPause):
		}
	}
}

// begin counts c, unless a limit is reached.
func (p *Proxy) begin(ctx context.Context, c *net.TCPConn) (*flow, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.flows) >= p.config.Limits.Connections || !p.rate.Allow() {
		return nil, false
	}
	seat, err := p.room.enter(socket{c, true})
	if err != nil {
		return nil, false // it is gone already, or there is no place
	}
	f := &flow{client: c, seat: seat, attempt: attempt.Attempt{Sandbox: p.config.Sandbox, Begun: time.Now()}}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx)) // cut ends it, which knows why
	p.flows[f] = struct{}{}
	return f, true
}

// tooManyReason is the reason in the record of a connection that is ended at once.
const tooManyReason = "too many connections; try again later"

// tooMany returns the record of c, which is past the limit of connections.
func (p *Proxy) tooMany(c *net.TCPConn) attempt.Attempt {
	a := attempt.Attempt{Sandbox: p.config.Sandbox, Verdict: attempt.Refused, Rule: ratelog.RuleConnections, Code: sbxerr.EgressBusy, Reason: tooManyReason, Begun: time.Now()}
	if to, err := p.config.Origin(c); err == nil { // else it is gone
		a.Asked = to
		a.Name, _ = p.config.Names.Name(to.Addr())
	}
	return a
}

// endedBefore is the reason in the record of a connection that the end of the sandbox
// left no time to come about.
const endedBefore = "the sandbox ended before the connection came about"

// end cuts all connections for good.
func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	const rule = "end of the sandbox"
	for f := range p.flows {
		if f.carried {
			f.cut(attempt.Stopped, policy.Decision{Rule: rule})
		} else {
			f.cut(attempt.Failed, policy.Decision{Rule: rule, Code: sbxerr.Canceled, Reason: endedBefore})
		}
	}
}

// over ends f, both sides of which are done, when they have taken what they were sent.
func (p *Proxy) over(f *flow) {
	p.mu.Lock()
	f.done = true
	p.mu.Unlock()
	f.seat.drain()
	p.finish(f)
}

// finish forgets f and tells of it.
func (p *Proxy) finish(f *flow) {
	p.forget(f)
	p.tell(f)
}

// forget closes what f has open.
func (p *Proxy) forget(f *flow) {
	f.cancel()
	for _, c := range []*net.TCPConn{f.client, f.upstream} {
		if c != nil {
			_ = c.Close()
		}
	}
	f.seat.leave()
	if f.left != nil {
		f.left()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flows, f)
}

func (p *Proxy) tell(f *flow) {
	p.mu.Lock()
	a := f.record()
	p.mu.Unlock()
	p.spare.Add(a)
}

func (p *Proxy) record(a attempt.Attempt, skipped uint64) {
	if a.Skipped = skipped; p.config.Recorder != nil {
		p.config.Recorder.Record(a)
	}
}

// admit makes f one that a change of the policy cuts, unless the policy in
// force does not allow it any more.
func (p *Proxy) admit(f *flow, upstream *net.TCPConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.upstream = upstream
	if err := f.seat.add(socket{upstream, f.link != policy.Link{}}); err != nil {
		return sbxerr.Wrap(sbxerr.Gateway, "proxy.admit", err)
	}
	if err := f.ended(); err != nil {
		return err
	}
	d := p.decide(f, p.policy)
	f.attempt.Rule, f.attempt.Private = d.Rule, d.Private
	if !d.Allowed {
		return d.Err()
	}
	f.carried = true
	return nil
}

// flow is one accepted connection. What is not said to be under the proxy's
// lock belongs to the goroutine that runs it, and is not changed once the flow
// is carried.
type flow struct {
	client *net.TCPConn // nil: it leads to the upstream of route
	seat   *seat
	ctx    context.Context // ends what waits: before bytes flow, and for a later head
	cancel context.CancelFunc

	route  policy.Name // not empty where there is no client
	turn   int         // of the route's upstreams
	mapped bool        // the operator said where the name leads
	left   func()      // says that the linked sandbox is left; nil: it was not entered
	speaks protocol    // in which the client can be told of a refusal

	attempt attempt.Attempt // the rest of the record

	// Set under the proxy's lock, by the goroutine that runs the flow.
	name    policy.Name    // empty for an address without a name
	asked   netip.AddrPort // what the sandbox connected to
	wanted  bool           // the policy allows that
	unread  bool           // as does a rule with the option opaque: nobody looks at what the client says
	toRoute bool           // it is a client's, to a route
	place   policy.Place   // of that route
	hidden  bool           // its TLS hello may hide another name
	routed  bool           // the next two are known
	link    policy.Link    // that is followed; zero: none
	proxied bool           // it leaves through the upstream proxy, whose address is dialled
	address netip.AddrPort // what is dialled
	aliases []policy.Name  // of name: what it leads to by CNAME
	asking  *asking        // the request by plain HTTP that is under way; nil: none

	// Under the proxy's lock.
	upstream *net.TCPConn
	carried  bool
	settled  bool // what became of it is known: a cut does not change that
	done     bool // both sides are: nor does it once they have all
	cutBy    *cutting
}

// asking is what rules with methods or a path look at.
type asking struct{ method, path string }

// cutting is why a flow was ended from outside.
type cutting struct {
	verdict attempt.Verdict
	by      policy.Decision
}

// cut ends f from outside: both sides learn of it at once.
func (f *flow) cut(v attempt.Verdict, by policy.Decision) {
	if f.cutBy == nil && !f.settled && !(f.done && f.seat.delivered()) {
		f.cutBy = &cutting{v, by}
	}
	f.cancel()
	reset(f.client)
	reset(f.upstream)
}

// target names where f was meant to go, for messages.
func (f *flow) target() string {
	if f.name == "" {
		return f.asked.String()
	}
	return fmt.Sprintf("%s:%d", f.name, f.asked.Port())
}

// record is the Attempt of f, of which all is known.
func (f *flow) record() attempt.Attempt {
	a := f.attempt
	a.Name, a.Asked, a.Address, a.Linked, a.Mapped, a.Proxied = f.name, f.asked, f.address, f.link != policy.Link{}, f.mapped, f.proxied
	a.Duration = time.Since(a.Begun)
	if c := f.cutBy; c != nil {
		a.Verdict, a.Rule, a.Code, a.Reason = c.verdict, c.by.Rule, c.by.Code, c.by.Reason
	}
	return a
}
