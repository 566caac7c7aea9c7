package main

import (
	"crypto/x509"
	"net"
	"sync"

	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/secret"
	"github.com/caisson-run/caisson/gateway/usage"
)

// routes serves those of one sandbox, from the first connection on.
type routes struct {
	sandbox *sandbox
	secrets *secret.Store
	roots   func() *x509.CertPool
	ledger  *budget.Ledger
	spent   func() // something changed in it

	mu     sync.Mutex
	server *route.Server // nil: nothing led to a route yet
}

// Serve takes over a connection.
func (r *routes) Serve(c net.Conn, at policy.Place) {
	r.mu.Lock()
	if r.server == nil {
		b := r.sandbox
		r.server = route.New(route.Config{
			Sandbox: b.id, Secrets: r.secrets, Roots: r.roots, Dial: b.proxy.DialUpstream, Limits: route.DefaultLimits,
			Ledger: r.ledger, Bill: func() budget.Bill { return *b.bill.Load() },
			Route: func(name policy.Name) (*policy.Routed, bool) { return b.proxy.Policy().Routed(name) },
			Record: func(u usage.Use) {
				b.out.event(b.id, control.Report{Use: &u})
				r.spent()
			},
		})
	}
	server := r.server
	r.mu.Unlock()
	server.Serve(c, at)
}

// end is called when all connections are over.
func (r *routes) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		r.server.Close()
	}
}
