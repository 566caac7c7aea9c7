package dns

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/gateway/policy"
)

// A header that promises a question which is not there passes the library's
// parser without one.
func TestHeaderWithoutItsQuestion(t *testing.T) {
	b := start(t, allowed, nil)
	for _, network := range []string{"udp", "tcp"} {
		c, err := miekg.DialTimeout(network, b.addr, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		if r, err := c.ReadMsg(); err != nil || r.Rcode != miekg.RcodeFormatError {
			t.Errorf("%s: %v, %v", network, r, err)
		}
		_ = c.Close()
	}
	if r := b.ask(t, "udp", question("a.test.", miekg.TypeA)); len(r.Answer) != 1 {
		t.Errorf("afterwards: %v", r)
	}
}

// writer keeps what is written to it.
type writer struct {
	miekg.ResponseWriter
	network net.Addr
	wrote   *miekg.Msg
}

func (w *writer) LocalAddr() net.Addr         { return w.network }
func (w *writer) RemoteAddr() net.Addr        { return w.network }
func (w *writer) WriteMsg(m *miekg.Msg) error { w.wrote = m; return nil }

// nowhere is a Resolver that must be asked for allowed names alone.
type nowhere struct{ t *testing.T }

func (n nowhere) Resolve(_ context.Context, name policy.Name) (policy.Resolution, error) {
	if name != "a.test" {
		n.t.Errorf("%q went upstream", name)
	}
	return policy.Resolution{Addresses: []netip.Addr{netip.MustParseAddr("9.9.9.9")}}, nil
}

// FuzzServe: any message gets an answer that can be sent, at most one address
// of the pool in it, and sends nothing but the allowed name upstream.
func FuzzServe(f *testing.F) {
	for _, m := range []*miekg.Msg{question("a.test.", miekg.TypeA), question("x.test.", miekg.TypeTXT), new(miekg.Msg).SetQuestion("a.test.", miekg.TypeANY)} {
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
		f.Add(packed[:12])
	}
	p, err := policy.Compile(policy.Spec{Mode: policy.Allow, Allow: []string{"a.test"}})
	if err != nil {
		f.Fatal(err)
	}
	pool := newPool(f, 10, nil)
	limits := DefaultLimits
	limits.PerSecond, limits.Burst = 1<<30, 1<<30
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(miekg.Msg)
		if m.Unpack(b) != nil {
			return
		}
		w := &writer{network: &net.UDPAddr{}}
		newServer(t.Context(), Config{Policy: func() *policy.Policy { return p }, Pool: pool, Resolver: nowhere{t}, Limits: limits}).ServeDNS(w, m)
		if w.wrote == nil {
			t.Fatal("no answer")
		}
		if packed, err := w.wrote.Pack(); err != nil || len(packed) > udpSize {
			t.Fatalf("%d bytes, %v", len(packed), err)
		}
		if len(w.wrote.Answer) > 1 || len(w.wrote.Ns) != 0 {
			t.Fatalf("%v", w.wrote)
		}
	})
}
