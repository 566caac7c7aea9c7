package remote

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The bounds of connections. Those of processes of this host are others: the network takes none
// of their places.
const (
	maxAll     = 1024
	maxKey     = 256 // of one key
	maxUnknown = 128 // that have shown no key yet
	maxSource  = 32  // of these, of one address
	maxNames   = 16  // keys that one connection shows

	// patience is how long a connection has until it shows a key: for the handshake too.
	patience = 10 * time.Second

	// An address may fail so often at once, and then once in each interval.
	maxFailures     = 20
	failureInterval = time.Second
	maxSources      = 4096 // that are remembered
)

var (
	errTooMany = sbxerr.New(sbxerr.Busy, "remote.connect", "too many connections")
	errSilent  = sbxerr.New(sbxerr.KeyRefused, "remote.connect", "the connection showed no key that counts")
)

// doors count connections.
type doors struct {
	refused func(address string, why error)

	mu       sync.Mutex
	conns    map[*conn]bool
	unknown  int
	sources  map[string]int       // connections that have shown no key yet
	keys     map[string]int       // connections, by key
	failures map[string]time.Time // by address: when all of its failures are forgiven
}

func newDoors(refused func(string, error)) *doors {
	return &doors{refused: refused, conns: map[*conn]bool{}, sources: map[string]int{}, keys: map[string]int{}, failures: map[string]time.Time{}}
}

// sourceOf is the address of a connection; of IPv6 the network of 64 bits.
func sourceOf(c net.Conn) string {
	a, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return "unknown"
	}
	ip := a.Addr().Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64) // it has as many
		return p.String()
	}
	return ip.String()
}

// enter takes a place for a connection that has shown no key yet.
func (d *doors) enter(raw net.Conn) (*conn, error) {
	c := &conn{Conn: raw, doors: d, address: sourceOf(raw), names: map[string]identity{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(d.conns) >= maxAll || d.unknown >= maxUnknown || d.sources[c.address] >= maxSource:
		return nil, errTooMany
	case time.Until(d.failures[c.address]) > maxFailures*failureInterval:
		return nil, sbxerr.New(sbxerr.Busy, "remote.connect", "too many failures")
	}
	d.conns[c] = true
	d.unknown++
	d.sources[c.address]++
	c.timer = time.AfterFunc(patience, func() { _ = c.Close() })
	return c, nil
}

// knownLocked gives back the place of a connection that has shown no key.
func (d *doors) knownLocked(c *conn) {
	c.timer.Stop()
	d.unknown--
	if d.sources[c.address]--; d.sources[c.address] == 0 {
		delete(d.sources, c.address)
	}
}

// failed notes that a connection showed no key that counts.
func (d *doors) failed(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.told = true
	address, now := c.address, time.Now()
	if len(d.failures) >= maxSources {
		for a, until := range d.failures {
			if now.After(until) || len(d.failures) >= maxSources {
				delete(d.failures, a)
			}
		}
	}
	until := d.failures[address]
	if until.Before(now) {
		until = now
	}
	if until.Sub(now) < 2*maxFailures*failureInterval {
		until = until.Add(failureInterval)
	}
	d.failures[address] = until
}

// harmless notes that a connection may end without a key.
func (d *doors) harmless(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.told = true
}

// closeUnless closes the connections of which a key does not count.
func (d *doors) closeUnless(counts func(identity) bool) {
	d.mu.Lock()
	seen := map[*conn][]identity{}
	for c := range d.conns {
		for _, i := range c.names {
			seen[c] = append(seen[c], i)
		}
	}
	d.mu.Unlock()
	for c, list := range seen {
		for _, i := range list {
			if !counts(i) {
				_ = c.Close() // which ends its calls
				break
			}
		}
	}
}

// conn is a connection from the network.
type conn struct {
	net.Conn
	doors   *doors
	address string
	timer   *time.Timer

	// By the lock of doors.
	names map[string]identity // of the keys that it showed
	told  bool                // its failure is counted, or would be none
	gone  bool
}

// admit counts a connection as one of a key.
func (c *conn) admit(i identity) error {
	d := c.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := c.names[i.key.Name]
	switch {
	case c.gone:
		return sbxerr.New(sbxerr.Canceled, "remote.connect", "the connection is closed")
	case known:
		c.names[i.key.Name] = i
		return nil
	case d.keys[i.key.Name] >= maxKey || len(c.names) >= maxNames:
		return sbxerr.WithRemedy(sbxerr.Busy, "remote.connect", errors.New("too many connections of one key"), "use fewer connections, or retry later")
	}
	if len(c.names) == 0 {
		d.knownLocked(c)
	}
	c.names[i.key.Name] = i
	d.keys[i.key.Name]++
	return nil
}

// Close also gives back the places of the connection.
func (c *conn) Close() error {
	if c.leave() {
		c.doors.failed(c)
		c.doors.refused(c.address, errSilent)
	}
	return c.Conn.Close()
}

// leave reports whether the connection never showed a key.
func (c *conn) leave() (silent bool) {
	d := c.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.gone {
		return false
	}
	c.gone = true
	delete(d.conns, c)
	for name := range c.names {
		if d.keys[name]--; d.keys[name] == 0 {
			delete(d.keys, name)
		}
	}
	if len(c.names) > 0 {
		return false
	}
	d.knownLocked(c)
	return !c.told
}

// listener accepts connections that are within the bounds. Others are closed at once.
type listener struct {
	net.Listener
	doors *doors
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, err := l.doors.enter(raw)
		if err == nil {
			return c, nil
		}
		l.doors.refused(sourceOf(raw), err)
		_ = raw.Close() // nothing was said on it
	}
}
