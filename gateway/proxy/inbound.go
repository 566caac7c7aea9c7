package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/ratelog"
)

// Door is a listener of the host, and the port inside to which it leads.
type Door struct {
	Listener *net.TCPListener
	Port     uint16
}

// InboundConfig is the way into one sandbox.
type InboundConfig struct {
	Sandbox string
	Clients [][]netip.Prefix // that may connect at each door; an empty list is any, and so is none at all
	Stock   *Stock
	Record  func(attempt.Arrival) // must not block
	Came    func()                // called for each connection that is let in; must not block; may be nil
	Limits  Limits                // Peek and Resolve do not matter here
}

// Inbound carries connections from outside to 127.0.0.1 in a sandbox, where they
// come from 127.0.0.1. Where nobody listens there, it carries them to ::1.
type Inbound struct {
	config InboundConfig
	rate   *rate.Limiter
	spare  ratelog.Log[attempt.Arrival] // ended at once by a limit
	room   *room

	mu      sync.Mutex
	clients [][]netip.Prefix // see InboundConfig
	arrived map[*arrival]struct{}
	guests  map[*guest]struct{}
	lines   map[netip.AddrPort]line
	closed  bool
}

// arrival is one accepted connection.
type arrival struct {
	client *net.TCPConn
	seat   *seat
	door   int // of those of Serve
	port   uint16
	record attempt.Arrival

	// Under the lock of Inbound.
	inside  *net.TCPConn     // nil before it is connected
	settled bool             // what became of it is known: a cut does not change that
	done    bool             // both sides are: nor does it once they have all
	cutBy   *attempt.Arrival // the verdict, code and reason; nil unless it was ended from here
}

// guest is a connection of a linked sandbox.
type guest struct {
	inside *net.TCPConn // under the lock of Inbound; nil before it is connected
}

// NewInbound makes an Inbound, which serves once.
func NewInbound(c InboundConfig) (*Inbound, error) {
	if c.Stock == nil || c.Record == nil {
		return nil, sbxerr.New(sbxerr.Internal, "proxy.inbound", "a way in without sockets or records")
	}
	if err := c.Limits.validate(); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "proxy.inbound", err)
	}
	in := &Inbound{
		config: c, rate: rate.NewLimiter(rate.Limit(c.Limits.NewPerSecond), c.Limits.NewBurst), room: newRoom(), clients: c.Clients,
		arrived: map[*arrival]struct{}{}, guests: map[*guest]struct{}{}, lines: map[netip.AddrPort]line{},
	}
	in.spare.Record = func(a attempt.Arrival, skipped uint64) {
		a.Skipped = skipped
		c.Record(a)
	}
	return in, nil
}

// Serve accepts connections at doors, whose listeners it closes, until ctx ends (the
// error is nil) or one of them fails. All connections are over when it returns.
func (in *Inbound) Serve(ctx context.Context, doors []Door) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		for _, d := range doors {
			_ = d.Listener.Close()
		}
		in.end()
	})
	defer stop()
	in.config.Stock.refill() // before somebody waits
	var all sync.WaitGroup
	all.Go(func() { watchIdle(ctx, in.config.Limits.Idle, in.cutIdle) })
	failed := make(chan error, len(doors))
	for i, d := range doors {
		go func() { failed <- in.accept(ctx, i, d, &all) }()
	}
	if len(doors) == 0 {
		<-ctx.Done() // it is there for links alone
	}
	var err error
	for range doors {
		err = errors.Join(err, <-failed)
		cancel() // none without the others
	}
	all.Wait()
	in.spare.Flush()
	return sbxerr.Wrap(sbxerr.Gateway, "proxy.inbound", errors.Join(err, in.config.Stock.Close()))
}

func (in *Inbound) accept(ctx context.Context, door int, d Door, all *sync.WaitGroup) error {
	err := accept(ctx, d.Listener, func(c *net.TCPConn) {
		a := &arrival{client: c, door: door, port: d.Port, record: in.recordOf(c, d.Port)}
		if code, reason := in.begin(a); code != "" {
			in.turnAway(a, code, reason)
			return
		}
		all.Go(func() { in.run(ctx, a, all) })
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	notForClient    = "the port is not published for this client"
	noMoreForClient = "the port is no longer published for this client"
)

// Admit has other clients at each door, as in InboundConfig. When it returns, the connections of
// others are cut.
func (in *Inbound) Admit(clients [][]netip.Prefix) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.clients = clients
	for a := range in.arrived {
		if !in.admitsLocked(a) {
			a.cut(attempt.Arrival{Verdict: attempt.Cut, Code: sbxerr.PortClient, Reason: noMoreForClient})
		}
	}
}

// admitsLocked reports whether a comes from a client of its door.
func (in *Inbound) admitsLocked(a *arrival) bool {
	if len(in.clients) == 0 {
		return true
	}
	if a.door >= len(in.clients) {
		return false
	}
	list, from := in.clients[a.door], a.record.Peer.Addr().Unmap()
	return len(list) == 0 || slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(from) })
}

// turnAway resets a before anything is read. Many in a row have one record.
func (in *Inbound) turnAway(a *arrival, code sbxerr.Code, reason string) {
	a.record.Verdict, a.record.Code, a.record.Reason = attempt.Refused, code, reason
	in.spare.Suppress(a.record)
	reset(a.client)
}

// begin counts a, unless it is no client's or a limit is reached: then it says so.
func (in *Inbound) begin(a *arrival) (code sbxerr.Code, reason string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.admitsLocked(a) {
		return sbxerr.PortClient, notForClient
	}
	if !in.roomLocked() {
		return sbxerr.EgressBusy, tooManyReason
	}
	var err error
	if a.seat, err = in.room.enter(socket{a.client, false}); err != nil {
		return sbxerr.EgressBusy, tooManyReason // it is gone already, or there is no place
	}
	in.arrived[a] = struct{}{}
	in.cameLocked()
	return "", ""
}

func (in *Inbound) cameLocked() {
	if in.config.Came != nil {
		in.config.Came()
	}
}

// Connections returns how many there are.
func (in *Inbound) Connections() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.arrived) + len(in.guests)
}

// recordOf is what is known of c at first.
func (in *Inbound) recordOf(c *net.TCPConn, port uint16) attempt.Arrival {
	r := attempt.Arrival{Sandbox: in.config.Sandbox, Port: port, Begun: time.Now()}
	if peer, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		r.Peer = peer.AddrPort()
	}
	return r
}

// roomLocked reports whether another connection may come in.
func (in *Inbound) roomLocked() bool {
	return !in.closed && len(in.arrived)+len(in.guests) < in.config.Limits.Connections && in.rate.Allow()
}

// Enter connects to a port inside for a sandbox that is linked to this one. The
// connection is reset when this one ends; the function is called when it is over.
func (in *Inbound) Enter(ctx context.Context, port uint16) (*net.TCPConn, func(), error) {
	full := sbxerr.New(sbxerr.EgressBusy, "proxy.link", "the linked sandbox ends, or has too many connections")
	g := &guest{}
	if !in.receive(g) { // before it costs that sandbox anything
		return nil, nil, full
	}
	leave := func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.guests, g)
	}
	c, err := in.connect(ctx, port)
	if err != nil {
		leave()
		return nil, nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		reset(c)
		delete(in.guests, g)
		return nil, nil, full
	}
	g.inside = c
	return c, leave, nil
}

// receive counts g, unless there is no room.
func (in *Inbound) receive(g *guest) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.roomLocked() {
		return false
	}
	in.guests[g] = struct{}{}
	in.cameLocked()
	return true
}

func (in *Inbound) run(ctx context.Context, a *arrival, all *sync.WaitGroup) {
	inside, err := in.connect(ctx, a.port)
	if err == nil {
		err = in.admit(a, inside)
	}
	if err != nil {
		in.settle(a)
		a.record.Verdict, a.record.Code, a.record.Reason = attempt.Failed, sbxerr.Of(err), policy.Cause(err)
		reset(a.client)
		in.finish(a)
		return
	}
	a.record.Verdict = attempt.Allowed
	relay{one: a.client, other: inside, seat: a.seat}.start(all, func(c tally) {
		a.record.Received, a.record.Sent = c.sent, c.received
		if c.broken {
			a.record.Reason = brokeOff
		}
		in.over(a)
	})
}

func (in *Inbound) connect(ctx context.Context, port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, in.config.Limits.Connect)
	defer cancel()
	c, err := in.connectTo(ctx, netip.AddrPortFrom(loopbacks[0], port))
	if errors.Is(err, unix.ECONNREFUSED) {
		if other, otherErr := in.connectTo(ctx, netip.AddrPortFrom(loopbacks[1], port)); otherErr == nil {
			return other, nil
		}
	}
	return c, err
}

// connectTo takes a socket of its own for each address: one that was refused has the
// family of the first.
func (in *Inbound) connectTo(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	for {
		socket, err := in.config.Stock.take(ctx)
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.Gateway, "proxy.inbound", err)
		}
		c, err := in.lineOf(to).connectInside(ctx, socket, to)
		if !errors.Is(err, errLate) {
			return c, sbxerr.Wrap(sbxerr.EgressDial, "proxy.inbound", err)
		}
	}
}

// lineOf is the line of connections to an address. They are few: a sandbox has 16
// published ports, and those that it exposes.
func (in *Inbound) lineOf(to netip.AddrPort) line {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.lines[to] == nil {
		in.lines[to] = make(line, 1)
	}
	return in.lines[to]
}

// admit makes a one that is cut with the sandbox.
func (in *Inbound) admit(a *arrival, inside *net.TCPConn) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		_ = inside.Close()
		return sbxerr.New(sbxerr.Canceled, "proxy.inbound", "the sandbox ended")
	}
	a.inside = inside
	return sbxerr.Wrap(sbxerr.Gateway, "proxy.inbound", a.seat.add(socket{inside, true}))
}

// end cuts all connections for good.
func (in *Inbound) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	for a := range in.arrived {
		if a.inside != nil {
			a.cut(attempt.Arrival{Verdict: attempt.Stopped, Reason: "the sandbox ended"})
		} else {
			a.cut(attempt.Arrival{Verdict: attempt.Failed, Code: sbxerr.Canceled, Reason: endedBefore})
		}
	}
	for g := range in.guests {
		reset(g.inside)
	}
}

// cut ends a from outside. The caller holds the lock.
func (a *arrival) cut(by attempt.Arrival) {
	if a.cutBy == nil && !a.settled && !(a.done && a.seat.delivered()) {
		a.cutBy = &by
	}
	reset(a.client)
	reset(a.inside)
}

func (in *Inbound) cutIdle(limit time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for a := range in.arrived {
		if a.inside == nil {
			continue
		}
		if quiet, ok := quietFor(a.client); ok && quiet >= limit {
			a.cut(attempt.Arrival{Verdict: attempt.Idle, Reason: fmt.Sprintf("nothing was sent for %v", limit)})
		}
	}
}

// settle says that what became of a is known.
func (in *Inbound) settle(a *arrival) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a.settled = true
}

// over ends a, both sides of which are done, when they have taken what they were sent.
func (in *Inbound) over(a *arrival) {
	in.mu.Lock()
	a.done = true
	in.mu.Unlock()
	a.seat.drain()
	in.finish(a)
}

// finish forgets a and tells of it.
func (in *Inbound) finish(a *arrival) {
	in.forget(a)
	in.tell(a)
}

// forget closes what a has open.
func (in *Inbound) forget(a *arrival) {
	_ = a.client.Close()
	a.seat.leave()
	in.mu.Lock()
	defer in.mu.Unlock()
	if a.inside != nil {
		_ = a.inside.Close()
	}
	delete(in.arrived, a)
}

func (in *Inbound) tell(a *arrival) {
	in.mu.Lock()
	if a.cutBy != nil {
		a.record.Verdict, a.record.Code, a.record.Reason = a.cutBy.Verdict, a.cutBy.Code, a.cutBy.Reason
	}
	in.mu.Unlock()
	a.record.Duration = time.Since(a.record.Begun)
	in.spare.Add(a.record)
}
