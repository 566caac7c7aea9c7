package egress

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// Counters are what a sandbox did since it was added, and what was before. A new
// process goes on with them.
type Counters struct {
	traffic.Counts
	Open int // connections now
	// Inbound are the connections now through published ports, and by links of others.
	Inbound int
	Lost    uint64 // connections and questions of which nothing is known: they ended with a process, or were too many
}

// View is how the serving of a sandbox stands.
type View struct {
	// Counters are what the gateway has told: connections that are over in a few
	// milliseconds, those that are open in two seconds, and all at once with Refresh.
	Counters Counters
	// Failure is why nothing of the sandbox gets out, or in, at the moment; nil while
	// it is served.
	Failure error
}

// View returns that of a sandbox, and false if there is no such sandbox.
func (g *Gateway) View(id string) (View, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.sandboxes[id]
	if e == nil {
		return View{}, false
	}
	return View{e.counters, cmp.Or(g.outageLocked(), e.broken)}, true
}

// outageLocked is why no sandbox is served.
func (g *Gateway) outageLocked() error {
	const op = "egress.view"
	switch {
	case g.link == nil && g.failure != nil:
		return sbxerr.Wrap(sbxerr.Gateway, op, fmt.Errorf("start the gateway: %w", g.failure))
	case g.link == nil || g.link.isGone():
		return sbxerr.New(sbxerr.Gateway, op, "the gateway ended, and the next one does not serve yet")
	}
	return nil
}

// brokenBy notes why a sandbox is not served, nil if it is.
func (g *Gateway) brokenBy(id string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.sandboxes[id]; e != nil {
		e.broken = err
	}
}

// Refresh returns when the gateway has told all that happened to a sandbox before, or ctx
// ends, or with code sbxerr.EgressBusy when it was too much to wait for; of all sandboxes,
// for an empty id, it is all but what one that floods sent last.
// Without a process there is nothing to tell: what it did not tell is lost.
func (g *Gateway) Refresh(ctx context.Context, id string) error {
	const op = "egress.refresh"
	l := g.current()
	if l == nil {
		return nil
	}
	answered := make(chan error, 1)
	go func() { answered <- l.ask(control.Request{Op: control.Settle, Sandbox: id}) }() // which may take longer than ctx lasts
	select {
	case err := <-answered:
		return sbxerr.Wrap(sbxerr.Gateway, op, err)
	case <-ctx.Done():
		return ended(ctx, op)
	}
}

// event takes a report that was checked. What is about no sandbox of ours is
// ignored.
func (g *Gateway) event(r control.Report) {
	o := g.options.Observer
	switch {
	case r.Attempt != nil:
		if g.count(r.Attempt.Sandbox, r.Lost, func(c *Counters) { c.Attempted(*r.Attempt) }) && o != nil {
			o.Attempted(*r.Attempt)
		}
	case r.Query != nil:
		if g.count(r.Query.Sandbox, r.Lost, func(c *Counters) { c.Queried(*r.Query) }) && o != nil {
			o.Queried(*r.Query)
		}
	case r.Arrival != nil:
		if g.count(r.Arrival.Sandbox, r.Lost, func(c *Counters) { c.Arrived(*r.Arrival) }) && o != nil {
			o.Arrived(*r.Arrival)
		}
	case r.Use != nil:
		if !g.count(r.Use.Sandbox, r.Lost, func(*Counters) {}) {
			return
		}
		g.used(*r.Use)
		if o != nil {
			o.Used(*r.Use)
		}
	case r.Named != nil:
		g.named(*r.Named)
	case r.Need != nil:
		g.needed(r.Need.Sandbox)
	case r.Open != nil:
		g.count(r.Open.Sandbox, 0, func(c *Counters) { c.Open = r.Open.Connections })
	case r.Inbound != nil:
		g.cameIn(*r.Inbound)
	case r.Spent != nil && g.options.Accounts != nil:
		g.options.Accounts.Spent(r.Spent)
	case r.Broken != nil:
		g.broke(r.Broken.Sandbox, r.Broken.Reason)
	}
}

// broke notes that the process serves a sandbox no more.
func (g *Gateway) broke(id, reason string) {
	e := g.get(id)
	if e == nil {
		return
	}
	g.options.Log.Error("the gateway serves a sandbox no more; "+e.lost(), "sandbox", id, "err", reason)
	g.brokenBy(id, sbxerr.New(sbxerr.Gateway, "egress.serve", "the gateway serves the sandbox no more: %s", reason))
}

// count changes the counters of a sandbox, and reports whether it is one.
func (g *Gateway) count(id string, lost uint64, change func(*Counters)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.sandboxes[id]
	if e == nil {
		return false
	}
	change(&e.counters)
	e.counters.lose(lost)
	return true
}

// lose adds n, and stays at the most there can be: n may be a lie.
func (c *Counters) lose(n uint64) { c.Lost += min(n, math.MaxUint64-c.Lost) }

// named keeps a name that is new. Neither a name nor an address ever changes
// its meaning, whatever a process says.
func (g *Gateway) named(n control.Named) {
	g.mu.Lock()
	e := g.sandboxes[n.Sandbox]
	if e == nil || e.names == nil || len(e.names) >= control.MaxNames || e.taken[n.Address] || e.names[n.Name].IsValid() {
		g.mu.Unlock()
		return
	}
	e.names[n.Name], e.taken[n.Address] = n.Address, true
	g.mu.Unlock()
	if g.options.Observer != nil {
		g.options.Observer.Named(n.Sandbox, n.Name, n.Address)
	}
}

// loseOpen counts what ended with a process. The caller holds g.mu.
func (g *Gateway) loseOpen() {
	for _, e := range g.sandboxes {
		e.counters.lose(uint64(e.counters.Open))
		e.counters.Open, e.counters.Inbound = 0, 0
	}
}
