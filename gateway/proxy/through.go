package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/upstream"
)

// byProxy is the reason in the record of a connection that came through.
const byProxy = "through the upstream proxy"

// through connects f by way of the upstream proxy, and by no other.
func (p *Proxy) through(f *flow) (c *net.TCPConn, heard []byte, err error) {
	if c, err = p.dialUpstream(f); err == nil {
		err = p.hold(f, c)
	}
	if err != nil && !ours(err) {
		err = sbxerr.Wrap(sbxerr.EgressProxyDown, "proxy.through", fmt.Errorf("connect to the upstream proxy %s: %w", p.config.Upstream, err))
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(f.ctx, p.config.Limits.Resolve+p.config.Limits.Connect, errors.New("it took too long")) // what it does both for us
	defer cancel()
	heard, err = p.config.Upstream.Open(ctx, c, upstream.Target{Name: f.name, Address: f.asked.Addr(), Port: f.asked.Port()})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, heard, nil
}

// dialUpstream connects to the proxy itself. Where that is, is the operator's word, and
// no policy is asked.
func (p *Proxy) dialUpstream(f *flow) (*net.TCPConn, error) {
	u := p.config.Upstream
	addresses := []netip.Addr{u.Address}
	if u.Name != "" {
		found, err := p.resolve(f, u.Name)
		if err != nil {
			return nil, err
		}
		addresses = found.Addresses
	}
	var all []netip.AddrPort
	for _, addr := range addresses[:min(len(addresses), maxTries)] {
		all = append(all, netip.AddrPortFrom(addr, u.Port))
	}
	if len(all) == 0 {
		return nil, errors.New("its name has no address")
	}
	ctx, cancel := context.WithTimeout(f.ctx, p.config.Limits.Connect)
	defer cancel()
	return p.dialAny(ctx, f, all)
}
