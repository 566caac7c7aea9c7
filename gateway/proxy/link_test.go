package proxy

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// A name that is a link is followed and never dialled; the other sandbox is left
// when the connection is over.
func TestLink(t *testing.T) {
	other := enter(t, nil)
	other.supply(attempt.Batch)
	port := uint16(other.server.Addr().(*net.TCPAddr).Port)
	spec := allow("a.test:22")
	spec.Links = map[string]policy.Link{"db": {Sandbox: "other", Port: port}}
	var inside atomic.Int64
	b := start(t, spec, echo, func(c *Config) {
		c.Link = func(ctx context.Context, l policy.Link) (*net.TCPConn, func(), error) {
			if l.Sandbox != "other" {
				t.Errorf("it follows %+v", l)
			}
			conn, left, err := other.in.Enter(ctx, l.Port)
			if err != nil {
				return nil, nil, err
			}
			inside.Add(1)
			return conn, func() { inside.Add(-1); left() }, nil
		}
	})
	if got, err := talk(b.dial("db", port), "hello"); got != "hello" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	a := b.record()
	if a.Verdict != attempt.Allowed || !a.Linked || a.Name != "db" || a.Address.Port() != port || a.Sent != 5 || inside.Load() != 0 {
		t.Errorf("%+v, %d inside", a, inside.Load())
	}
	if got, err := io.ReadAll(b.dial("db", port+1)); len(got) > 0 || err == nil {
		t.Errorf("another port: %q, %v", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied {
		t.Errorf("another port: %+v", a)
	}
	if dialed := b.dialer.all(); len(dialed) > 0 {
		t.Errorf("dialled %q", dialed)
	}
	held := b.dial("db", port)
	if _, err := io.WriteString(held, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	moved := spec
	moved.Links = map[string]policy.Link{"db": {Sandbox: "third", Port: port}}
	b.SetPolicy(compile(t, moved))
	if _, err := held.Read(make([]byte, 1)); err == nil {
		t.Error("a link that leads elsewhere is not cut")
	}
	if a := b.record(); a.Verdict != attempt.Cut {
		t.Errorf("%+v", a)
	}
	b.SetPolicy(compile(t, spec))
	held = b.dial("db", port)
	if _, err := io.WriteString(held, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	other.stop()
	if _, err := held.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives the sandbox that it leads to")
	}
	b.record()
	if got, err := io.ReadAll(b.dial("db", port)); len(got) > 0 || err == nil {
		t.Errorf("to one that ended: %q, %v", got, err)
	}
	if a := b.record(); a.Verdict == attempt.Allowed || a.Reason == "" {
		t.Errorf("to one that ended: %+v", a)
	}
}

// A sandbox that has no room is not connected to, and one that is not reached has as much
// room as before.
func TestLinkNeedsRoom(t *testing.T) {
	var came atomic.Int64
	other := enterBefore(t, func(c net.Conn) { came.Add(1); _, _ = io.Copy(c, c) }, func(l *Limits) { l.Connections = 1 })
	other.supply(attempt.Batch)
	port := uint16(other.server.Addr().(*net.TCPAddr).Port)
	c, leave, err := other.in.Enter(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := talk(c, "x"); got != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	left := len(other.stock.sockets)
	if _, _, err := other.in.Enter(t.Context(), port); sbxerr.Of(err) != sbxerr.EgressBusy {
		t.Errorf("%v, want %s", err, sbxerr.EgressBusy)
	}
	if n := len(other.stock.sockets); n != left || came.Load() != 1 {
		t.Errorf("%d sockets of %d, %d connections", n, left, came.Load())
	}
	_, _ = c.Close(), other.server.Close()
	leave()
	for range 2 {
		if _, _, err := other.in.Enter(t.Context(), port); sbxerr.Of(err) != sbxerr.EgressDial {
			t.Errorf("with nobody inside: %v, want %s", err, sbxerr.EgressDial)
		}
	}
}

// Without somebody who follows links there are none.
func TestLinkNowhere(t *testing.T) {
	spec := allow()
	spec.Links = map[string]policy.Link{"db": {Sandbox: "other", Port: 5432}}
	b := start(t, spec, echo, nil)
	if got, err := io.ReadAll(b.dial("db", 5432)); len(got) > 0 || err == nil {
		t.Errorf("%q, %v", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Failed || !a.Linked || a.Code != sbxerr.EgressDial || len(b.dialer.all()) > 0 {
		t.Errorf("%+v", a)
	}
}
