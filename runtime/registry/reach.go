package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// How long a connection may take, and how long after one family of addresses the other is
// tried (RFC 8305).
const (
	dialTimeout   = 30 * time.Second
	fallbackDelay = 300 * time.Millisecond
)

// targetKey marks the context of a request with its target.
type targetKey struct{}

// target is the server of a request.
type target struct {
	host    string // without the port
	named   bool   // the configuration or the reference names it: no answer led there
	proxied bool   // a proxy connects to it
}

// targetOf is where base sends req.
func (g *guard) targetOf(base http.RoundTripper, req *http.Request) target {
	to := target{host: req.URL.Hostname(), named: slices.Contains(g.servers, origin(req.URL)) || slices.Contains(g.realms, req.URL.Host)}
	if tr, ok := base.(*http.Transport); ok && tr.Proxy != nil {
		proxy, err := tr.Proxy(req)
		to.proxied = err == nil && proxy != nil
	}
	return to
}

// dialer connects where judge allows it.
func (g *guard) dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, FallbackDelay: fallbackDelay, ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		to, known := ctx.Value(targetKey{}).(target)
		if known && to.proxied {
			return nil
		}
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return sbxerr.New(sbxerr.PullRefused, opGuard, "%q is no address: %w", address, err)
		}
		return g.judge(to, ap.Addr().Unmap())
	}}
}

// judge refuses addresses to which a registry must not send the daemon. A named server may
// have any address but those of a cloud's own services. Any other server has a public one, or
// is as near as a named server: on the site with a registry of the site, on this host with a
// registry of this host.
func (g *guard) judge(to target, addr netip.Addr) error {
	class := policy.Classify(addr)
	own, err := isOwn(addr)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Registry, opGuard, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	allowed := false
	switch {
	case class.Grade < policy.Private:
		spelled, err := netip.ParseAddr(to.host)
		allowed = to.named && class.Grade == policy.Spelled && err == nil && spelled == addr
	case own:
		allowed = to.named || g.local
	case class.Grade == policy.Private:
		allowed = to.named || g.onSite
	default:
		allowed = true
	}
	if !allowed {
		what := class.Name
		if own && class.Grade >= policy.Private {
			what = "of this host"
		}
		return sbxerr.WithRemedy(sbxerr.PullRefused, opGuard,
			fmt.Errorf("the registry sends the pull to %s, whose address %s is %s", to.host, addr, what),
			"have the registry send its content itself, or name a mirror that does in hosts.toml (registries.hosts_dir)")
	}
	g.onSite = g.onSite || to.named && class.Grade == policy.Private
	return nil
}

// isOwn reports whether addr leads to a service of this host.
func isOwn(addr netip.Addr) (bool, error) {
	if addr.IsLoopback() {
		return true, nil
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list the addresses of this host: %w", err)
	}
	return slices.ContainsFunc(list, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == addr
	}), nil
}
