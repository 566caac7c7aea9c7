package main

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/policy"
)

// resolver is the dns.Resolver of one sandbox, whose policy may choose others than the
// common ones. What those find is kept for this sandbox alone.
type resolver struct {
	common dns.Resolver // that of sandboxes which choose none

	mu      sync.Mutex
	servers []netip.AddrPort
	chosen  dns.Resolver // nil: the common one
}

// choose takes what a policy says. No servers are the common ones.
func (r *resolver) choose(servers []netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(servers, r.servers) {
		return
	}
	r.servers, r.chosen = servers, nil
	if len(servers) == 0 {
		return
	}
	up, err := dns.NewUpstream(servers)
	if err != nil {
		r.chosen = unresolved{err}
		return
	}
	r.chosen = up.Share()
}

// Resolve implements dns.Resolver.
func (r *resolver) Resolve(ctx context.Context, name policy.Name) (policy.Resolution, error) {
	r.mu.Lock()
	asked := r.chosen
	if asked == nil {
		asked = r.common
	}
	r.mu.Unlock()
	return asked.Resolve(ctx, name)
}
