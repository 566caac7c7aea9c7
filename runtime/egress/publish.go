package egress

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// How often one sandbox is given sockets, in batches: for more connections in a
// second than the gateway lets in, and little enough for one that lies.
const (
	batchesPerSecond = 20
	batchesBurst     = 80
)

// Published is a sandbox to whose ports others may connect.
type Published struct {
	ID        string
	Exposed   []uint16         // to which links of other sandboxes may lead
	Ports     []uint16         // inside, one for each listener
	Clients   [][]netip.Prefix // that may connect to each of Ports; an empty list is any
	Listeners []*os.File       // of the host; they stay the caller's until Remove returns
	Before    traffic.Counts   // what was counted earlier; nothing for a sandbox that was added
	// Sockets opens TCP sockets in the sandbox's namespace that are not connected
	// and do not block. It is called at any time until Remove returns.
	Sockets func(n int) ([]*os.File, error)
	Came    func() // called for each new connection; must not block; may be nil
}

// published is what is kept of it.
type published struct {
	Published
	rate  *rate.Limiter
	needs chan struct{} // has something while the gateway waits for sockets
	stop  context.CancelFunc
}

// Publish has the gateway accept connections for a sandbox, whether it was added or
// not. One that is published already is refused with code sbxerr.Exists.
func (g *Gateway) Publish(ctx context.Context, p Published) error {
	const op = "egress.publish"
	if len(p.Ports)+len(p.Exposed) == 0 || len(p.Ports) != len(p.Listeners) || len(p.Clients) > 0 && len(p.Clients) != len(p.Ports) || max(len(p.Ports), len(p.Exposed)) > control.MaxPorts {
		return sbxerr.New(sbxerr.Internal, op, "%d ports and %d listeners", len(p.Ports), len(p.Listeners))
	}
	return g.with(ctx, op, func(l *link) error {
		e, err := g.attach(p)
		if err != nil {
			return err
		}
		if err := l.ask(e.published.request(), p.Listeners...); err != nil {
			g.detach(p.ID)
			return err
		}
		return nil
	})
}

// Admit has other clients at each of the ports of a published sandbox, as in Published. When it
// returns, connections of others are cut. With an error the old ones are in force.
func (g *Gateway) Admit(ctx context.Context, id string, clients [][]netip.Prefix) error {
	const op = "egress.admit"
	if err := g.acquire(ctx, op); err != nil {
		return err
	}
	defer g.release()
	e := g.get(id)
	if e == nil || e.published == nil || len(clients) != len(e.published.Ports) {
		return sbxerr.New(sbxerr.NotFound, op, "sandbox %s has not %d published ports", id, len(clients))
	}
	if l := g.current(); l != nil {
		if err := l.ask(control.Request{Op: control.Admit, Sandbox: id, Clients: clients}); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	e.published.Clients = clients // without a process nobody gets in; the next one begins with these
	return nil
}

// attach notes p with the entry of its sandbox, which gets one if it has none.
func (g *Gateway) attach(p Published) (*entry, error) {
	const op = "egress.publish"
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosed(op)
	}
	e := g.sandboxes[p.ID]
	if e == nil {
		e = &entry{counters: Counters{Counts: p.Before}}
		g.sandboxes[p.ID] = e
	}
	if e.published != nil {
		return nil, sbxerr.New(sbxerr.Exists, op, "sandbox %s is published already", p.ID)
	}
	e.published = &published{Published: p, rate: rate.NewLimiter(batchesPerSecond, batchesBurst), needs: make(chan struct{}, 1)}
	var ctx context.Context
	ctx, e.published.stop = context.WithCancel(context.Background())
	go g.keepSupplied(ctx, e.published)
	return e, nil
}

// detach undoes attach.
func (g *Gateway) detach(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.sandboxes[id]
	if e == nil {
		return
	}
	e.published.stop()
	e.published = nil
	if e.files == nil {
		delete(g.sandboxes, id)
	}
}

func (p *published) request() control.Request {
	return control.Request{Op: control.Publish, Sandbox: p.ID, Ports: p.Ports, Clients: p.Clients, Exposed: p.Exposed}
}

// introduce tells a gateway all of a sandbox.
func (g *Gateway) introduce(l *link, id string, e *entry) error {
	var errs []error
	if e.files != nil {
		errs = append(errs, l.ask(g.request(id, e), e.files...))
	}
	if e.published != nil {
		errs = append(errs, l.ask(e.published.request(), e.published.Listeners...))
	}
	return errors.Join(errs...)
}

// needed notes that the gateway asks for sockets for a sandbox. It does so once, and
// then waits: that another request of it is noted is enough.
func (g *Gateway) needed(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.sandboxes[id]; e != nil && e.published != nil {
		select {
		case e.published.needs <- struct{}{}:
		default:
		}
	}
}

// cameIn notes how many connections from outside a sandbox has.
func (g *Gateway) cameIn(n control.Inbound) {
	g.mu.Lock()
	e, came := g.sandboxes[n.Sandbox], func() {}
	if e != nil && e.published != nil {
		e.counters.Inbound = n.Connections
		if n.Connections > 0 && e.published.Came != nil {
			came = e.published.Came
		}
	}
	g.mu.Unlock()
	came()
}

// keepSupplied brings the gateway the sockets that it asks for, until ctx ends.
func (g *Gateway) keepSupplied(ctx context.Context, p *published) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.needs:
		}
		if p.rate.Wait(ctx) != nil {
			return
		}
		err := g.supply(ctx, p)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errGone) {
			g.options.Log.Error("the gateway gets no sockets for a sandbox; nobody gets in", "sandbox", p.ID, "err", err)
		}
	}
}

// supply brings one batch.
func (g *Gateway) supply(ctx context.Context, p *published) error {
	if err := g.acquire(ctx, "egress.supply"); err != nil {
		return err
	}
	defer g.release()
	l := g.current()
	if l == nil || ctx.Err() != nil {
		return nil // the next process asks again, or the sandbox is gone
	}
	sockets, err := p.Sockets(attempt.Batch)
	if err == nil && len(sockets) > 0 {
		err = l.ask(control.Request{Op: control.Supply, Sandbox: p.ID, Sockets: len(sockets)}, sockets...)
	}
	for _, f := range sockets {
		err = errors.Join(err, f.Close())
	}
	return err
}
