package egress

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
)

// hostResolvers is read where no resolvers are configured.
const hostResolvers = "/etc/resolv.conf"

// supervise keeps a process running until Close, or until there is none and
// nobody to serve. It keeps its thread: see launch.
func (g *Gateway) supervise(running chan struct{}) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	defer close(running)
	backoff := g.timing.minBackoff
	for {
		began := time.Now()
		err := g.runOnce()
		if g.rest(err) {
			return
		}
		if time.Since(began) >= g.timing.stable {
			backoff = g.timing.minBackoff
		}
		g.options.Log.Warn("the gateway ended; until the next one serves, nothing gets out by it, and refusals of the mode bridge have no record", "err", err, "after", backoff)
		select {
		case <-g.stop:
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, g.timing.maxBackoff)
	}
}

// rest reports whether nobody needs a process now. Then the next Add starts one.
func (g *Gateway) rest(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && len(g.sandboxes) > 0 {
		return false
	}
	if !g.closed {
		g.options.Log.Warn("the gateway ended; the next sandbox starts another", "err", err)
		g.running = nil
		g.announce()
	}
	return true
}

// runOnce runs one process from start to end.
func (g *Gateway) runOnce() error {
	p, err := g.launch()
	if err != nil {
		g.down(err)
		return err
	}
	if err := g.handOver(p); err != nil {
		err = sbxerr.Wrap(sbxerr.Gateway, "egress.start", errors.Join(err, p.finish()))
		g.down(err)
		return err
	}
	go g.keepAsking(p)
	select {
	case <-p.gone:
	case <-g.stop:
	}
	err = p.finish()
	g.down(nil)
	return err
}

// handOver gives p all sandboxes, and makes it the one that serves.
func (g *Gateway) handOver(p *process) error {
	select {
	case g.op <- struct{}{}:
	case <-g.stop:
		return errClosed("egress.start")
	}
	defer g.release()
	if err := p.configure(g); err != nil {
		return err
	}
	if err := g.handOverSecrets(p.link); err != nil {
		return err
	}
	for id, e := range g.all() {
		g.brokenBy(id, nil) // from here on it is this process that says so
		err := g.introduce(p.link, id, e)
		if errors.Is(err, errGone) {
			return err
		}
		if err != nil { // it stays shut off, the others need not
			g.options.Log.Error("the gateway does not take a sandbox; "+e.lost(), "sandbox", id, "err", err)
			g.brokenBy(id, err)
		}
	}
	g.serving(p)
	return nil
}

// all returns the sandboxes in order of their IDs, with names as they are now.
// The caller holds g.op.
func (g *Gateway) all() func(yield func(string, *entry) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	copies := map[string]*entry{}
	for id, e := range g.sandboxes {
		copies[id] = &entry{policy: e.policy, names: maps.Clone(e.names), files: e.files, op: e.op, bill: e.bill, published: e.published}
	}
	return func(yield func(string, *entry) bool) {
		for _, id := range slices.Sorted(maps.Keys(copies)) {
			if !yield(id, copies[id]) {
				return
			}
		}
	}
}

// servers are the resolvers to ask. Without any, mapped names and addresses
// still work, so that is no reason not to start.
func (g *Gateway) servers() []netip.AddrPort {
	if len(g.options.Servers) > 0 {
		return g.options.Servers
	}
	servers, err := hostServers(hostResolvers)
	if err != nil {
		g.options.Log.Warn("the gateway has no resolver; only mapped names resolve", "err", err)
	}
	return servers
}

// keepAsking kills a process that gives no answer: ask does.
func (g *Gateway) keepAsking(p *process) {
	ticker := time.NewTicker(g.timing.ping)
	defer ticker.Stop()
	for {
		select {
		case <-p.gone:
			return
		case <-ticker.C:
			_ = p.ask(control.Request{Op: control.Ping})
		}
	}
}

// badRequest is one that cannot be sent: the caller's mistake.
func badRequest(q control.Request, err error) error {
	return sbxerr.Wrap(sbxerr.Internal, "egress.request", fmt.Errorf("ask the gateway to %s: %w", q.Op, err))
}
