package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// This file joins connections to the HTTP of package route. A route has two kinds of them:
// those of clients, which are handed over, and those to the upstream, which have no client.
// Both are flows, so both are bounded, recorded, and cut by a change of the policy.

// lastDelivery is how long a client may take for the end of an answer.
const lastDelivery = 2 * time.Second

// handOver gives the client of f to the routes.
func (p *Proxy) handOver(f *flow, all *sync.WaitGroup) error {
	if p.config.Routes == nil {
		return sbxerr.New(sbxerr.EgressDial, "proxy.route", "no route leads anywhere here")
	}
	p.mu.Lock()
	err := f.ended()
	if err == nil {
		f.carried = true
		f.attempt.Verdict = attempt.Allowed
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	all.Add(1) // while run is one of them
	p.config.Routes.Serve(&routeConn{TCPConn: f.client, end: func(c *routeConn) {
		defer all.Done()
		f.attempt.Sent, f.attempt.Received = c.read.Load(), c.written.Load()
		_ = f.client.CloseWrite()
		_ = f.client.SetDeadline(time.Now().Add(lastDelivery))
		f.seat.drain()
		p.overRoute(f)
	}}, f.place)
	return nil
}

// DialUpstream connects to the upstream of the route name that is asked in the given turn. A change of the policy that takes
// the route away, or leads it elsewhere, cuts the connection. Errors have a code.
func (p *Proxy) DialUpstream(ctx context.Context, name policy.Name, turn int) (net.Conn, error) {
	f, err := p.beginUpstream(ctx, name, turn)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, f.cancel)
	heard, err := p.open(f)
	if !stop() && err == nil {
		err = sbxerr.New(sbxerr.Canceled, "proxy.upstream", "the client is gone")
	}
	if err != nil {
		p.fail(f, err)
		p.finish(f)
		p.upstreams.Done()
		return nil, err
	}
	f.attempt.Verdict = attempt.Allowed
	if f.proxied {
		f.attempt.Reason = byProxy
	}
	return &routeConn{TCPConn: f.upstream, heard: heard, end: func(c *routeConn) {
		f.attempt.Sent, f.attempt.Received = c.written.Load(), c.read.Load()
		p.overRoute(f)
		p.upstreams.Done()
	}}, nil
}

// overRoute ends f, which package net/http is done with. What its peer does not take is
// nobody's.
func (p *Proxy) overRoute(f *flow) {
	p.mu.Lock()
	f.done = true
	p.mu.Unlock()
	if !f.seat.delivered() {
		reset(f.client)
		reset(f.upstream)
	}
	p.forget(f)
	if f.route != "" || f.cutBy != nil {
		p.tell(f)
	} // else its requests have records
}

// beginUpstream makes the flow of a connection to the upstream of a route.
func (p *Proxy) beginUpstream(ctx context.Context, name policy.Name, turn int) (*flow, error) {
	const op = "proxy.upstream"
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.policy.Routed(name)
	switch {
	case p.closed:
		return nil, sbxerr.New(sbxerr.Canceled, op, endedBefore)
	case !ok || r.Turn(turn) == nil:
		return nil, sbxerr.New(sbxerr.EgressDenied, op, "the sandbox has no route %s any more", name)
	case !p.rate.Allow():
		return nil, sbxerr.New(sbxerr.EgressBusy, op, tooManyReason)
	}
	seat, err := p.room.enter()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.EgressBusy, op, err)
	}
	r = r.Turn(turn)
	address := r.Address
	if r.Name != "" {
		address = netip.IPv4Unspecified() // it has no address of the sandbox's
	}
	f := &flow{
		route: name, turn: turn, name: r.Name, asked: netip.AddrPortFrom(address, r.Port), seat: seat, wanted: true,
		attempt: attempt.Attempt{Sandbox: p.config.Sandbox, Rule: p.policy.Decide(name, policy.RoutePort).Rule, Begun: time.Now()},
	}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.flows[f] = struct{}{}
	p.upstreams.Add(1) // before the end, which waits for it
	return f, nil
}

// routeConn is a connection that package net/http uses.
type routeConn struct {
	*net.TCPConn
	heard         []byte // read before
	seat          *seat  // nil: it is as wide as it is
	read, written atomic.Int64
	once          sync.Once
	end           func(*routeConn)
}

// Read counts.
func (c *routeConn) Read(b []byte) (n int, err error) {
	if len(c.heard) > 0 {
		n = copy(b, c.heard)
		c.heard = c.heard[n:]
	} else {
		n, err = c.TCPConn.Read(b)
	}
	c.count(&c.read, n)
	return n, err
}

// Write counts.
func (c *routeConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.count(&c.written, n)
	return n, err
}

// count adds n to bytes that were moved.
func (c *routeConn) count(bytes *atomic.Int64, n int) {
	now := bytes.Add(int64(n))
	if c.seat != nil && now/spliceAfter != (now-int64(n))/spliceAfter {
		c.seat.tend()
	}
}

// ReadFrom has what is written pass Write.
func (c *routeConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// WriteTo has what is read pass Read.
func (c *routeConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c})
}

// Close ends the flow, once.
func (c *routeConn) Close() error {
	c.once.Do(func() { c.end(c) })
	return nil
}
