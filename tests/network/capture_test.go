package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/netns"
)

// capture sees each packet of one namespace, whatever its protocol (packet(7)).
type capture struct {
	fd   int
	done chan struct{}

	mu   sync.Mutex
	seen map[string]int // by what a packet is for
}

func startCapture(t *testing.T, ns *netns.Namespace) *capture {
	t.Helper()
	c := &capture{done: make(chan struct{}), seen: map[string]int{}}
	err := ns.Do(func() error {
		var err error
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		return err
	})
	if err == nil { // so that the reader sees the end
		err = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	go c.read(stop)
	t.Cleanup(func() {
		close(stop)
		<-c.done
	})
	return c
}

func htons(v uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)) }

func (c *capture) read(stop chan struct{}) {
	defer close(c.done)
	defer unix.Close(c.fd)
	buf := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, _, err := unix.Recvfrom(c.fd, buf, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			return
		}
		c.note(describe(buf[:n]))
	}
}

func (c *capture) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[what]++
}

// take returns what was seen until now, once it has had time to arrive.
func (c *capture) take() []string {
	time.Sleep(300 * time.Millisecond) // packets are queued to the socket as they pass; the reader needs a moment
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := slices.Sorted(maps.Keys(c.seen))
	clear(c.seen)
	return seen
}

// toItself is a packet to the IPv6 address that every loopback device may have.
const toItself = "to ::1"

// describe says what a packet is for: the begin of a connection, a datagram, or
// something else. The rest of a connection is what its begin was.
func describe(p []byte) string {
	if len(p) >= 40 && p[0]>>4 == 6 && netip.AddrFrom16([16]byte(p[24:40])).IsLoopback() {
		return toItself
	}
	if len(p) < 20 || p[0]>>4 != 4 {
		return fmt.Sprintf("not IPv4: %x", p[:min(len(p), 8)])
	}
	header := int(p[0]&0xf) * 4
	dst, _ := netip.AddrFromSlice(p[16:20])
	body := p[min(header, len(p)):]
	switch {
	case p[9] == unix.IPPROTO_TCP && len(body) >= 14:
		if flags := body[13]; flags&0x12 != 0x02 { // SYN without ACK
			return "tcp"
		}
		return fmt.Sprintf("syn %s:%d", dst, binary.BigEndian.Uint16(body[2:]))
	case p[9] == unix.IPPROTO_UDP && len(body) >= 4:
		if binary.BigEndian.Uint16(body) == 53 {
			return "answer"
		}
		return fmt.Sprintf("udp %s:%d", dst, binary.BigEndian.Uint16(body[2:]))
	}
	return fmt.Sprintf("protocol %d to %s", p[9], dst)
}

// No packet is where it should not be: not in the host's namespace, whatever is tried
// in the sandbox, and not in the sandbox's, which create looks at.
func TestPackets(t *testing.T) {
	s := create(t, "--allow", "web.example")
	out := startCapture(t, host.ns)
	if said := outside(t, "echo", elsewhere+":5432"); said != "echo ping" {
		t.Fatalf("the control: %q", said)
	}
	if seen := out.take(); !slices.Contains(seen, "syn "+elsewhere+":5432") {
		t.Fatalf("the control was not seen: %q", seen)
	}
	for _, args := range [][]string{
		{"http", "http://web.example/"}, {"tls", "web.example:443", "web.example"}, {"tls", "web.example:443", "other.example"},
		{"http", "http://other.example/"}, {"http", "http://" + public + "/"}, {"http", "http://" + metadata + "/"}, {"echo", private + ":5432"},
		{"echo", "web.example:5432"}, {"query", resolver + ":53", "web.example", "A"}, {"udp", public + ":9"}, {"udp", "198.18.0.9:53"},
		{"query", "127.0.0.1:53", "secret.attacker.example", "A", "TXT"}, {"echo", "198.18.200.200:80"}, {"echo", "[2606:4700::1]:80"},
	} {
		s.try(args...)
	}
	for _, what := range out.take() {
		switch what {
		case "tcp", "answer", "syn " + public + ":80", "syn " + public + ":443", "udp " + resolver + ":53":
		default:
			t.Errorf("on the host: %s", what)
		}
	}
}

// staysInside says whether a packet in a sandbox's namespace is for the gateway there,
// or for the sandbox itself.
func staysInside(what string) bool {
	pool := netip.MustParsePrefix("198.18.0.0/15")
	kind, to, _ := strings.Cut(what, " ")
	addr, err := netip.ParseAddrPort(to)
	switch {
	case kind == "tcp" || kind == "answer" || what == toItself:
		return true
	case err == nil && kind == "syn" && pool.Contains(addr.Addr()):
		return true
	}
	return err == nil && addr.Addr().IsLoopback() || what == "protocol 1 to 127.0.0.1" // it says that nobody listens
}

// watch looks at all packets in the namespace of s while t lasts.
func (s sandbox) watch(t *testing.T) {
	t.Helper()
	c := startCapture(t, inspected(t, s))
	t.Cleanup(func() {
		for _, what := range c.take() {
			if !staysInside(what) {
				t.Errorf("in sandbox %s: %s", s.id, what)
			}
		}
	})
}
