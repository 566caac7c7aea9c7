// Package dnstest is a resolver of the host, and a client that asks one, for
// tests.
package dnstest

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
)

// Serve answers for names as addr, on the host's loopback, and returns where.
// Other names have no address.
func Serve(t testing.TB, addr netip.Addr, names ...string) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &miekg.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		r := new(miekg.Msg).SetReply(q)
		if asked := q.Question[0]; asked.Qtype == miekg.TypeA && slices.ContainsFunc(names, func(n string) bool { return asked.Name == n+"." }) {
			r.Answer = []miekg.RR{&miekg.A{Hdr: miekg.RR_Header{Name: asked.Name, Rrtype: miekg.TypeA, Class: miekg.ClassINET, Ttl: 1}, A: addr.AsSlice()}}
		}
		_ = w.WriteMsg(r)
	})}
	go func() { _ = server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = server.Shutdown() })
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

// Ask asks the resolver of the calling thread's namespace for the address of a
// name, which may be none.
func Ask(name string) (addr netip.Addr, rcode int, err error) {
	r, _, err := (&miekg.Client{Timeout: 10 * time.Second}).Exchange(new(miekg.Msg).SetQuestion(miekg.Fqdn(name), miekg.TypeA), "127.0.0.1:53")
	if err != nil {
		return netip.Addr{}, 0, err
	}
	for _, rr := range r.Answer {
		if a, ok := rr.(*miekg.A); ok {
			addr, _ = netip.AddrFromSlice(a.A.To4())
		}
	}
	return addr, r.Rcode, nil
}
