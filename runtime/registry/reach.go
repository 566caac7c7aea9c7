package registry

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

const opGuard = "registry.request"

// How long a connection may take, and how long after one family of addresses the other is
// tried (RFC 8305).
const (
	dialTimeout   = 30 * time.Second
	fallbackDelay = 300 * time.Millisecond
)

// Bounds of the connections of one pull: in all, and how many are made without a pause before each.
const (
	maxDials  = 1024
	fastDials = 128
	dialPause = 50 * time.Millisecond
)

// target is the server of a request.
type target struct {
	host  string // without the port
	named bool   // the configuration or the reference names it: no answer led there
}

// dialer makes the connections for one image.
type dialer struct {
	servers []string // the registry's origins, with its mirrors
	realms  []string // hosts beside them that may give tokens
	local   bool     // one of servers is this host itself
	timeout time.Duration

	mu     sync.Mutex
	onSite bool // one that is named has an address that is not public
	dials  int  // so far
}

func newDialer(servers []imagework.Server, realms []string, timeout time.Duration) *dialer {
	d := &dialer{realms: realms, timeout: timeout}
	for _, s := range servers {
		d.servers = append(d.servers, s.Origin())
		d.local = d.local || imagework.Loopback(s.Host)
	}
	return d
}

// dial connects to SCHEME://HOST[:PORT], if content of the registry may come from there.
func (d *dialer) dial(ctx context.Context, server string) (*os.File, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || imagework.ServerOf(u) != server {
		return nil, sbxerr.New(sbxerr.PullRefused, opGuard, "%q is no server", sbxerr.Clip(server))
	}
	origin := imagework.Origin(u)
	named := slices.Contains(d.servers, origin)
	if u.Scheme != "https" && (u.Scheme != "http" || !imagework.Loopback(u.Host) || !d.local && !named) {
		return nil, sbxerr.New(sbxerr.PullRefused, opGuard, "%s://%s is not HTTPS: only a registry of this host is asked without", u.Scheme, u.Host)
	}
	if err := d.count(ctx); err != nil {
		return nil, err
	}
	to := target{u.Hostname(), named || slices.Contains(d.realms, u.Host)}
	dialer := net.Dialer{Timeout: d.timeout, FallbackDelay: fallbackDelay}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err == nil && proxy != nil {
		return dialed(dialer.DialContext(ctx, "tcp", address(proxy)))
	}
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return sbxerr.New(sbxerr.PullRefused, opGuard, "%q is no address: %w", address, err)
		}
		return d.judge(to, ap.Addr().Unmap())
	}
	return dialed(dialer.DialContext(ctx, "tcp", address(u)))
}

// dialed is a connection as it is passed on.
func dialed(conn net.Conn, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	defer conn.Close() // the file is a copy
	return conn.(*net.TCPConn).File()
}

// address is where a server or a proxy is, as net/http understands its URL.
func address(u *url.URL) string {
	port := map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port, "80"))
}

// proxies are the variables that say which proxies there are.
func proxies() (list []string) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		for _, name := range []string{name, strings.ToLower(name)} {
			if value := os.Getenv(name); value != "" {
				list = append(list, name+"="+value)
			}
		}
	}
	return list
}

// count bounds connections, and slows down one that makes many.
func (d *dialer) count(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dials++; d.dials > maxDials {
		return sbxerr.New(sbxerr.PullRefused, opGuard, "the pull asks for more than %d connections", maxDials)
	}
	if d.dials <= fastDials {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(dialPause):
		return nil
	}
}

// judge refuses addresses to which a registry must not send the daemon. A named server may
// have any address but those of a cloud's own services. Any other server has a public one, or
// is as near as a named server: on the site with a registry of the site, on this host with a
// registry of this host.
func (d *dialer) judge(to target, addr netip.Addr) error {
	class := policy.Classify(addr)
	own, err := isOwn(addr)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Registry, opGuard, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	allowed := false
	switch {
	case class.Grade < policy.Private:
		spelled, err := netip.ParseAddr(to.host)
		allowed = to.named && class.Grade == policy.Spelled && err == nil && spelled == addr
	case own:
		allowed = to.named || d.local
	case class.Grade == policy.Private:
		allowed = to.named || d.onSite
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
	d.onSite = d.onSite || to.named && class.Grade == policy.Private
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
