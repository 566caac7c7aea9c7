package remote

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/keys"
)

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", f.address)
	if err != nil {
		panic(err)
	}
	return a
}
func (from) Close() error { return nil }

func enter(t *testing.T, d *doors, address string) (*conn, error) {
	t.Helper()
	c, err := d.enter(from{address: address})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func silent(string, error) {}

// Connections without a key are few for one address, and one that shows a key makes room.
func TestUnknownConnections(t *testing.T) {
	d := newDoors(silent)
	var first *conn
	for i := range maxSource {
		c, err := enter(t, d, "192.0.2.1:1000")
		if err != nil {
			t.Fatal(i, err)
		}
		if first == nil {
			first = c
		}
	}
	if _, err := enter(t, d, "192.0.2.1:9"); err == nil {
		t.Error("one more from the same address")
	}
	if err := first.admit(identity{key: keys.Key{Name: "ann"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := enter(t, d, "192.0.2.1:9"); err != nil {
		t.Errorf("with room: %v", err)
	}
	for i := range maxUnknown - maxSource {
		if _, err := enter(t, d, net.JoinHostPort(net.IPv4(198, 51, 100, byte(i)).String(), "1")); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := enter(t, d, "203.0.113.1:1"); err == nil {
		t.Error("more than all that have shown no key")
	}
}

// One key does not take all connections.
func TestConnectionsOfAKey(t *testing.T) {
	d := newDoors(silent)
	ann, bob := identity{key: keys.Key{Name: "ann"}}, identity{key: keys.Key{Name: "bob"}}
	for i := range maxKey {
		c, err := enter(t, d, "192.0.2.1:1")
		if err == nil {
			err = c.admit(ann)
		}
		if err != nil {
			t.Fatal(i, err)
		}
		if err := c.admit(ann); err != nil { // another request of the same
			t.Fatal(err)
		}
	}
	c, err := enter(t, d, "192.0.2.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.admit(ann); sbxerr.Of(err) != sbxerr.Busy {
		t.Errorf("one more: %v", err)
	}
	if err := c.admit(bob); err != nil {
		t.Errorf("another key: %v", err)
	}
	for open := range d.conns {
		_ = open.Close()
	}
	if len(d.conns)+d.unknown+len(d.sources)+len(d.keys) != 0 {
		t.Errorf("left: %+v", d)
	}
	if err := c.admit(bob); err == nil {
		t.Error("a closed connection is admitted")
	}
}

// An address that fails often is not let in for a while; others are.
func TestFailures(t *testing.T) {
	d := newDoors(silent)
	for range maxFailures + 1 {
		c, err := enter(t, d, "192.0.2.1:1")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // it showed nothing
	}
	if _, err := enter(t, d, "192.0.2.1:1"); !errors.Is(err, sbxerr.Busy) {
		t.Errorf("after many failures: %v", err)
	}
	if _, err := enter(t, d, "192.0.2.2:1"); err != nil {
		t.Errorf("another address: %v", err)
	}
	d.failures["192.0.2.1"] = time.Now().Add(maxFailures*failureInterval - time.Second)
	if _, err := enter(t, d, "192.0.2.1:1"); err != nil {
		t.Errorf("after a while: %v", err)
	}
	for i := range 2 * maxSources {
		d.failed(&conn{address: net.IPv4(10, 0, byte(i>>8), byte(i)).String()})
	}
	if len(d.failures) > maxSources {
		t.Errorf("%d addresses are remembered", len(d.failures))
	}
}

func TestSource(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%lo]:5": "fe80::/64",
	} {
		if got := sourceOf(from{address: address}); got != want {
			t.Errorf("%s is of %s, not %s", address, got, want)
		}
	}
}

// A connection is closed when a key that it showed no longer counts.
func TestCloseUnless(t *testing.T) {
	d := newDoors(silent)
	list := map[string]*conn{}
	for _, name := range []string{"ann", "bob"} {
		c, err := enter(t, d, "192.0.2.1:1")
		if err == nil {
			err = c.admit(identity{key: keys.Key{Name: name}})
		}
		if err != nil {
			t.Fatal(err)
		}
		list[name] = c
	}
	d.closeUnless(func(i identity) bool { return i.key.Name == "bob" })
	if !list["ann"].gone || list["bob"].gone {
		t.Errorf("ann's is closed: %v, bob's: %v", list["ann"].gone, list["bob"].gone)
	}
}
