package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
)

// published is the way in to one sandbox.
type published struct {
	id      string
	exposed []uint16 // to which links may lead
	in      *proxy.Inbound
	stock   *proxy.Stock
	out     *outbox
	told    atomic.Int64 // connections, as far as the daemon knows
	stop    context.CancelFunc
	served  sync.WaitGroup
}

func (s *server) publish(q control.Request, files []*os.File) error {
	const op = "gateway.publish"
	if s.entry(q.Sandbox) != nil {
		return sbxerr.New(sbxerr.Internal, op, "the sandbox %s is published already", q.Sandbox)
	}
	doors, err := doorsOf(q, files)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Gateway, op, err)
	}
	p := &published{id: q.Sandbox, exposed: q.Exposed, out: s.out}
	p.stock = proxy.NewStock(func() { p.out.push(control.Report{Need: &control.Need{Sandbox: p.id}}) })
	p.in, err = proxy.NewInbound(proxy.InboundConfig{Sandbox: p.id, Clients: q.Clients, Stock: p.stock, Record: p.record, Came: p.came, Limits: proxy.DefaultLimits})
	if err != nil {
		return errors.Join(err, closeDoors(doors))
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	p.served.Go(func() { p.report(p.in.Serve(ctx, doors)) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published[q.Sandbox] = p
	return nil
}

// admit has other clients at the ports of a sandbox.
func (s *server) admit(id string, clients [][]netip.Prefix) error {
	p := s.entry(id)
	if p == nil {
		return errNotPublished("gateway.admit", id)
	}
	p.in.Admit(clients)
	return nil
}

func errNotPublished(op, id string) error {
	return sbxerr.New(sbxerr.NotFound, op, "the sandbox %s is not published", id)
}

// entry is the way in to a sandbox, nil if it has none.
func (s *server) entry(id string) *published {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published[id]
}

// shut ends the way in to a sandbox.
func (s *server) shut(id string) {
	p := s.entry(id)
	if p == nil {
		return
	}
	s.mu.Lock()
	delete(s.published, id)
	s.mu.Unlock()
	p.end()
}

// link connects to where a link leads.
func (s *server) link(ctx context.Context, l policy.Link) (*net.TCPConn, func(), error) {
	const op = "gateway.link"
	p := s.entry(l.Sandbox)
	switch {
	case p == nil:
		return nil, nil, sbxerr.New(sbxerr.EgressDial, op, "the sandbox %s, to which the link leads, is gone", l.Sandbox)
	case !slices.Contains(p.exposed, l.Port):
		return nil, nil, sbxerr.New(sbxerr.EgressDenied, op, "the sandbox %s does not expose port %d", l.Sandbox, l.Port)
	}
	return p.in.Enter(ctx, l.Port)
}

// doorsOf are copies of the listeners, with the ports to which they lead.
func doorsOf(q control.Request, files []*os.File) ([]proxy.Door, error) {
	var doors []proxy.Door
	for i, f := range files {
		l, err := net.FileListener(f)
		if err != nil {
			return nil, errors.Join(err, closeDoors(doors))
		}
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return nil, errors.Join(fmt.Errorf("a socket to publish is a %T, not a TCP listener", l), l.Close(), closeDoors(doors))
		}
		doors = append(doors, proxy.Door{Listener: tcp, Port: q.Ports[i]})
	}
	return doors, nil
}

func closeDoors(doors []proxy.Door) error {
	var errs []error
	for _, d := range doors {
		errs = append(errs, d.Listener.Close())
	}
	return errors.Join(errs...)
}

// supply gives sockets to whom they are for, and takes them over.
func (s *server) supply(id string, files []*os.File) error {
	p := s.entry(id)
	if p == nil {
		return errors.Join(errNotPublished("gateway.supply", id), closeFiles(files))
	}
	return sbxerr.Wrap(sbxerr.Gateway, "gateway.supply", p.stock.Put(files))
}

// record passes on what became of a connection.
func (p *published) record(a attempt.Arrival) { p.out.event(p.id, control.Report{Arrival: &a}) }

// came tells the daemon of the first connection at once: what waits inside may be paused.
func (p *published) came() {
	if p.told.CompareAndSwap(0, 1) {
		p.out.push(control.Report{Inbound: &control.Inbound{Sandbox: p.id, Connections: 1}})
	}
}

// tellOpen reports the number of connections if it changed.
func (p *published) tellOpen() {
	n := p.in.Connections()
	if p.told.Swap(int64(n)) != int64(n) {
		p.out.push(control.Report{Inbound: &control.Inbound{Sandbox: p.id, Connections: n}})
	}
	if n == 0 && p.in.Connections() > 0 { // it came when others still were
		p.came()
	}
}

// report says that nobody gets in any more, unless that was asked for.
func (p *published) report(err error) {
	if err != nil {
		p.out.push(control.Report{Broken: &control.Broken{Sandbox: p.id, Reason: err.Error()}})
	}
}

// end cuts all connections and returns when they are over.
func (p *published) end() {
	p.stop()
	p.served.Wait()
}
