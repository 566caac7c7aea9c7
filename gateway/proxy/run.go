package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// maxTries is how many addresses of a name are dialled before it is given up.
const maxTries = 4

// leastTry is the time that each of them gets at least, if there is that much.
const leastTry = 2 * time.Second

// ruleMismatch names what refuses a client that names another host.
const ruleMismatch = "host named by the client"

// brokeOff is the reason in the record of a connection that one side did not end.
const brokeOff = "the connection broke"

// run takes f to where bytes can flow, and has them flow both ways.
func (p *Proxy) run(f *flow, all *sync.WaitGroup) {
	said, err := p.greet(f)
	if err == nil && f.toRoute {
		if err = p.handOver(f, all); err == nil {
			return
		}
	}
	var heard []byte
	if err == nil {
		heard, err = p.open(f)
	}
	p.carry(f, all, said, heard, err)
}

// carry has bytes flow, with what each side said before, or tells the client of err.
func (p *Proxy) carry(f *flow, all *sync.WaitGroup, said, heard []byte, err error) {
	if err != nil {
		p.fail(f, err)
		p.tell(f) // before the client hears of it: the result of a command that it ends has the record
		refuse(f.client, f.speaks, err)
		p.forget(f)
		return
	}
	f.attempt.Verdict, f.attempt.Reason = attempt.Allowed, ""
	if f.proxied {
		f.attempt.Reason = byProxy
	}
	if f.speaks == http1 {
		all.Go(func() { p.serveHTTP(f, all, said, heard) })
		return
	}
	p.relay(f, all, said, heard, func(tally) {})
}

// relay has bytes of f flow both ways, with what each side said before, until they are over.
func (p *Proxy) relay(f *flow, all *sync.WaitGroup, said, heard []byte, over func(tally)) {
	relay{f.client, f.upstream, said, heard, f.seat}.start(all, func(c tally) {
		f.attempt.Sent += c.sent
		f.attempt.Received += c.received
		if c.broken {
			f.broke()
		}
		over(c)
		p.over(f)
	})
}

// broke notes that one side of f did not end it.
func (f *flow) broke() {
	f.attempt.Reason = strings.TrimPrefix(f.attempt.Reason+"; "+brokeOff, "; ")
}

// again takes f to where it went before, on a new connection.
func (p *Proxy) again(f *flow) (heard []byte, err error) {
	p.detach(f)
	if !p.rate.Allow() {
		return nil, sbxerr.New(sbxerr.EgressBusy, "proxy.again", "%s", tooManyReason)
	}
	return p.open(f)
}

// detach ends the connection to where f went.
func (p *Proxy) detach(f *flow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = f.upstream.Close() // both sides are done with it
	f.upstream, f.carried = nil, false
	f.seat.alone()
	if f.left != nil {
		f.left()
	}
	f.left = nil
}

// holdHead takes a place for a later head of f that is not whole.
func (p *Proxy) holdHead(f *flow) bool {
	select {
	case p.heads <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(p.config.Limits.Peek)
	defer late.Stop()
	select {
	case p.heads <- struct{}{}:
		return true
	case <-f.ctx.Done():
	case <-late.C:
	}
	return false
}

// tellRefused records a request that was refused on a connection that is carried.
func (p *Proxy) tellRefused(f *flow, rule string, err error) {
	p.mu.Lock()
	a := f.record()
	p.mu.Unlock()
	a.Verdict, a.Rule, a.Code, a.Reason, a.Sent, a.Received = attempt.Refused, rule, sbxerr.Of(err), policy.Cause(err), 0, 0
	p.spare.Add(a)
}

// open connects f and admits it. It returns what the destination said meanwhile.
func (p *Proxy) open(f *flow) (heard []byte, err error) {
	upstream, heard, err := p.connect(f)
	if err != nil {
		return nil, err
	}
	return heard, p.admit(f, upstream)
}

// greet finds out where f was meant to go and hears what the client says first,
// which also a client that is refused must have said before it can be told.
func (p *Proxy) greet(f *flow) (said []byte, err error) {
	asked, err := p.config.Origin(f.client)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Gateway, "proxy.origin", err)
	}
	d := p.first(f, asked)
	f.attempt.Rule = d.Rule
	if d.Allowed && (f.name == "" || f.toRoute) {
		return nil, nil // there is no name to compare with, or the route does
	}
	if !f.unread {
		f.speaks = spoken(f.asked.Port())
	}
	host, said, silent := p.peek(f)
	switch {
	case !d.Allowed:
		return nil, d.Err()
	case f.speaks == other:
		return nil, silent
	}
	if err := p.matches(f, host, silent); err != nil {
		return said, err
	}
	return said, p.hides(f, said)
}

// connect dials where f may go. It returns what the destination said already.
func (p *Proxy) connect(f *flow) (c *net.TCPConn, heard []byte, err error) {
	if err := p.route(f); err != nil {
		return nil, nil, err
	}
	if f.link != (policy.Link{}) {
		c, err = p.follow(f, f.link)
		return c, nil, err
	}
	if f.proxied {
		return p.through(f)
	}
	addresses, err := p.addresses(f)
	if err != nil {
		return nil, nil, err
	}
	c, err = p.dial(f, addresses)
	return c, nil, err
}

// follow connects to the port of another sandbox to which the name of f leads.
func (p *Proxy) follow(f *flow, l policy.Link) (*net.TCPConn, error) {
	if p.config.Link == nil {
		return nil, sbxerr.New(sbxerr.EgressDial, "proxy.link", "no link leads anywhere here")
	}
	ctx, cancel := context.WithTimeout(f.ctx, p.config.Limits.Connect)
	defer cancel()
	c, left, err := p.config.Link(ctx, l)
	if err != nil {
		return nil, err
	}
	f.left = left
	p.mu.Lock()
	defer p.mu.Unlock()
	f.address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), l.Port)
	return c, nil
}

// matches refuses a client that does not name the host that it connected to.
func (p *Proxy) matches(f *flow, host string, silent error) error {
	err := silent
	if err == nil {
		err = compare(f.name, host)
	}
	if err == nil {
		return nil
	}
	remedy := fmt.Sprintf("name %s in the HTTP Host header or in TLS SNI", f.name)
	if said, parseErr := policy.ParseWireName(host); parseErr == nil {
		remedy = fmt.Sprintf("connect to %s by its own name", said)
		if d := p.Policy().Decide(said, f.asked.Port()); !d.Allowed {
			remedy += "; " + d.Remedy
		}
	}
	if rule := p.Policy().NeededOpaque(f.name, f.asked.Port()); rule != "" && attempt.NamesNobody(err.Error()) {
		remedy += "; if the service speaks another protocol there, allow it with --allow " + rule
	}
	return sbxerr.WithRemedy(sbxerr.EgressMismatch, "proxy.peek", fmt.Errorf("the connection was made to %s, but %w", f.target(), err), remedy)
}

// hides notes whether said is a TLS hello that may hide another name than it shows, and
// refuses it where the decision depends on the name.
func (p *Proxy) hides(f *flow, said []byte) error {
	if f.speaks != tlsHello {
		return nil
	}
	hidden, err := hidesName(said)
	if err != nil {
		return sbxerr.Wrap(sbxerr.EgressMismatch, "proxy.peek", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.hidden = hidden
	d := p.decide(f, p.policy)
	f.attempt.Rule = d.Rule
	return d.Err()
}

// addresses are what f may be connected to: each was decided on.
func (p *Proxy) addresses(f *flow) ([]netip.AddrPort, error) {
	port := f.asked.Port()
	if f.name == "" {
		return []netip.AddrPort{f.asked}, nil
	}
	inForce := f.under(p.Policy())
	var to netip.AddrPort
	if to, f.mapped = inForce.Mapped(f.name, port); f.mapped {
		return []netip.AddrPort{to}, inForce.DecideResolved(f.name, port, to.Addr()).Err()
	}
	found, err := p.resolve(f, f.name)
	if err != nil && !ours(err) {
		err = sbxerr.Wrap(sbxerr.EgressResolve, "proxy.resolve", err)
	}
	if err != nil {
		return nil, err
	}
	if err := p.leads(f, found.Aliases); err != nil {
		return nil, err
	}
	var good []netip.AddrPort
	var refusal error
	for _, addr := range found.Addresses {
		if d := p.decideResolved(f, inForce, addr); d.Allowed {
			good = append(good, netip.AddrPortFrom(addr, port))
		} else if refusal == nil {
			refusal, f.attempt.Private = d.Err(), d.Private
		}
	}
	switch {
	case len(good) > 0:
		return good[:min(len(good), maxTries)], nil
	case refusal != nil:
		return nil, refusal
	}
	return nil, sbxerr.New(sbxerr.EgressResolve, "proxy.resolve", "%s has no address", f.name)
}

// leads notes the names that the name of f is an alias of, and refuses denied ones.
func (p *Proxy) leads(f *flow, aliases []policy.Name) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.aliases = aliases
	d := p.decide(f, p.policy)
	if !d.Allowed {
		f.attempt.Rule = d.Rule
	}
	return d.Err()
}

// resolve finds what name leads to, on the way to where f was meant to go.
func (p *Proxy) resolve(f *flow, name policy.Name) (policy.Resolution, error) {
	ctx, cancel := context.WithTimeout(f.ctx, p.config.Limits.Resolve)
	defer cancel()
	found, err := p.config.Resolver.Resolve(ctx, name)
	if sbxerr.Of(err) == sbxerr.EgressBusy {
		f.attempt.Rule = "limit of lookups"
	}
	return found, err
}

// dial connects to the first of addresses that answers, and notes which.
func (p *Proxy) dial(f *flow, addresses []netip.AddrPort) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(f.ctx, p.config.Limits.Connect)
	defer cancel()
	c, err := p.dialAny(ctx, f, addresses)
	if err != nil && !ours(err) {
		return nil, sbxerr.Wrap(sbxerr.EgressDial, "proxy.dial", fmt.Errorf("connect to %s: %w", f.target(), err))
	}
	return c, err
}

func (p *Proxy) dialAny(ctx context.Context, f *flow, addresses []netip.AddrPort) (_ *net.TCPConn, err error) {
	defer func() {
		if err != nil {
			p.untry(f)
		}
	}()
	each := max(p.config.Limits.Connect/time.Duration(len(addresses)), leastTry)
	var errs []error
	for _, addr := range addresses {
		if err := p.try(f, addr); err != nil {
			return nil, err
		}
		c, err := p.dialOne(ctx, addr, each)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (p *Proxy) dialOne(ctx context.Context, addr netip.AddrPort, limit time.Duration) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := p.config.Dialer.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the dialer gave a %T, not a TCP connection", c), c.Close())
	}
	return tcp, nil
}

// fail notes why f came to nothing, whatever the policy will be.
func (p *Proxy) fail(f *flow, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.wanted, f.settled = false, true
	a := &f.attempt
	a.Code, a.Reason, a.Verdict = sbxerr.Of(err), policy.Cause(err), attempt.Refused
	switch a.Code {
	case sbxerr.EgressResolve, sbxerr.EgressDial, sbxerr.EgressProxy, sbxerr.EgressProxyDown, sbxerr.Gateway:
		a.Verdict = attempt.Failed
	case sbxerr.EgressMismatch:
		a.Rule = ruleMismatch
	}
}
