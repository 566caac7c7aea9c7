package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/netns"
)

// captureBuffer holds what passes until it is read.
const captureBuffer = 32 << 20

const loIndex = 1 // lo is the first device of each namespace

// capture sees each packet of one namespace, whatever its protocol (packet(7)).
type capture struct {
	file *os.File
	fd   int // its own

	mu    sync.Mutex
	buf   []byte
	flows map[flow]bool
	seen  []packet
}

// newCapture begins one. The namespace may be closed.
func newCapture(ns *netns.Namespace) (*capture, error) {
	c := &capture{buf: make([]byte, 1<<16), flows: map[flow]bool{}}
	err := ns.Do(func() (err error) {
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
		return err
	})
	if err != nil {
		return nil, err
	}
	c.file = os.NewFile(uintptr(c.fd), "capture")
	err = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer)
	raw, rawErr := c.file.SyscallConn()
	if err := errors.Join(err, rawErr); err != nil {
		return nil, errors.Join(err, c.close())
	}
	go func() {
		_ = raw.Read(func(uintptr) bool { c.read(); return false }) // it ends with the file
	}()
	return c, nil
}

// startCapture begins one that lasts as long as t.
func startCapture(t *testing.T, ns *netns.Namespace) *capture {
	t.Helper()
	c, err := newCapture(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func htons(v uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)) }

func (c *capture) close() error { return c.file.Close() }

// read takes all that is there. A packet is, before who sent it goes on.
func (c *capture) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, from, err := unix.Recvfrom(c.fd, c.buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			c.seen = append(c.seen, packet{what: "the capture fails: " + err.Error()})
			return
		default:
			link := from.(*unix.SockaddrLinklayer)
			arrives := link.Ifindex == loIndex && link.Pkttype != unix.PACKET_OUTGOING
			c.note(parse(link.Ifindex, htons(link.Protocol), c.buf[:n]), arrives)
		}
	}
}

// note remembers what begins something: the rest of a connection, and what answers, is
// what its begin was. What arrives on lo was seen when it was sent there.
func (c *capture) note(p packet, arrives bool) {
	begins := strings.HasPrefix(p.what, kindBegin)
	segment := strings.HasPrefix(p.what, kindSegment)
	switch {
	case (segment || arrives) && c.flows[p.flow]:
	case !begins && c.flows[p.back()]:
	case p.cites.to.IsValid() && (c.flows[p.cites] || c.flows[p.cites.back()]):
	default:
		c.flows[p.flow] = true
		if !slices.ContainsFunc(c.seen, p.like) {
			c.seen = append(c.seen, p)
		}
	}
}

// take returns what was seen since the last call.
func (c *capture) take() []packet {
	c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	lost, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	switch {
	case err != nil:
		seen = append(seen, packet{what: "nobody knows whether all were seen: " + err.Error()})
	case lost.Drops > 0:
		seen = append(seen, packet{what: fmt.Sprintf("%d packets that were not seen", lost.Drops)})
	}
	return seen
}

// saw reports whether one of the packets begins so.
func saw(seen []packet, what string) bool {
	return slices.ContainsFunc(seen, func(p packet) bool { return strings.HasPrefix(p.what, what) })
}

// No packet is where it should not be, whatever is tried in a sandbox: all tests look, on
// the host and in each sandbox. Here they would see one.
//
//caisson:kernel
func TestPackets(t *testing.T) {
	s := create(t, "--allow", "web.example")
	host.settle(t)
	client := filepath.Join(clientDir(t), "client")
	onHost, inside := &world{dir: host.dir}, &world{dir: filepath.Dir(s.netns())} // with the sources that a gateway has
	for _, a := range []struct {
		at   *world
		args []string
		seen string
	}{
		{onHost, []string{"echo", elsewhere + ":5432"}, "on the host: syn " + elsewhere + ":5432 from " + uplink},
		{onHost, []string{"http", "http://" + metadata + "/"}, "on the host: syn " + metadata + ":80 from " + uplink},
		{onHost, []string{"echo", "[" + publicV6 + "]:5432"}, "on the host: syn [" + publicV6 + "]:5432 from [" + uplinkV6},
		{onHost, []string{"echo", control + ":5432"}, "on the host: syn " + control + ":5432 from"},
		{onHost, []string{"udp", public + ":9"}, "on the host: udp " + public + ":9 from"},
		{onHost, []string{"query", resolver + ":53", "other.example", "TXT"}, "on the host: " + question("TXT", "other.example", resolver)},
		{onHost, []string{"packet", "icmp", public}, "on the host: protocol 1 to " + public},
		{inside, []string{"packet", "link", public}, "in " + s.netns() + ": protocol 1 to " + public},
	} {
		a.at.try(client, a.args...)
		if said := host.unexpected(); !slices.ContainsFunc(said, func(text string) bool { return strings.HasPrefix(text, a.seen) }) {
			t.Errorf("the control: %q: %q", a.args, said)
		}
	}
	reaches(t, "web.example:80", "web.example:443")
	for _, args := range [][]string{
		{"http", "http://web.example/"}, {"tls", "web.example:443", "web.example"}, {"tls", "web.example:443", "other.example"},
		{"http", "http://other.example/"}, {"http", "http://" + public + "/"}, {"http", "http://" + metadata + "/"}, {"echo", private + ":5432"},
		{"echo", "web.example:5432"}, {"query", resolver + ":53", "web.example", "A"}, {"udp", public + ":9"}, {"udp", "198.18.0.9:53"},
		{"query", "127.0.0.1:53", "secret.attacker.example", "A", "TXT"}, {"echo", "198.18.200.200:80"}, {"echo", "[2606:4700::1]:80"},
	} {
		s.try(args...)
	}
}

// What belongs to no connection whose begin was seen is seen.
//
//caisson:kernel
func TestPacketsOfNoConnection(t *testing.T) {
	var c net.Conn
	if err := host.ns.Do(func() (err error) {
		c, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(control)}}).Dial("tcp4", public+":5432")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := startCapture(t, host.ns)
	if _, err := io.WriteString(c, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if seen := out.take(); !saw(seen, kindSegment+" "+public+":5432") {
		t.Errorf("%s", seen)
	}
}
