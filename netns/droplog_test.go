package netns

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/netns/nflog"
)

// told returns the packets of which the socket tells until one goes to last.
func told(t *testing.T, socket *os.File, last netip.AddrPort) []nflog.Packet {
	t.Helper()
	r, err := nflog.NewReader(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = r.Close() })
	defer late.Stop()
	var all []nflog.Packet
	for {
		p, err := r.Next()
		if err != nil {
			t.Fatalf("after %v: %v", all, err)
		}
		if p.Destination == last {
			return all
		}
		p.Read = time.Time{}
		all = append(all, p)
	}
}

// What the rules let go nowhere is told of, whatever its protocol; what they lead, and
// what stays inside, is not.
func TestDropLog(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		path := create(t)
		s := mustInstall(t, path, pool)
		n := open(t, path)
		send := func(kind, proto int, to string, body []byte) nflog.Packet {
			at := netip.MustParseAddrPort(to)
			_ = unix.Sendto(socketInside(t, n, domain(at), kind, proto, false), body, 0, sockaddr(at)) // it may be refused
			return nflog.Packet{Group: nflog.Refused, Protocol: byte(proto), Destination: at, Opens: true}
		}
		connect := func(to string) nflog.Packet {
			_ = connectInside(t, n, to, false)
			return nflog.Packet{Group: nflog.Refused, Protocol: unix.IPPROTO_TCP, Destination: netip.MustParseAddrPort(to), Opens: true}
		}
		for _, inside := range []string{"198.18.0.5:443", "127.0.0.1:53", "127.0.0.1:4000", "[::1]:4000"} {
			connect(inside)
		}
		send(unix.SOCK_DGRAM, unix.IPPROTO_UDP, "127.0.0.1:53", []byte("question"))
		echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0} // RFC 792
		want := []nflog.Packet{
			connect("9.9.9.9:443"), connect("169.254.169.254:80"), connect("[2001:db8::1]:22"),
			send(unix.SOCK_DGRAM, unix.IPPROTO_UDP, "8.8.8.8:53", []byte("question")),
			send(unix.SOCK_DGRAM, unix.IPPROTO_UDP, "198.18.0.5:443", []byte("hello")), // QUIC to an allowed name
			send(unix.SOCK_DGRAM, unix.IPPROTO_UDP, "[2001:db8::1]:53", []byte("question")),
			send(unix.SOCK_DGRAM, unix.IPPROTO_UDP, "224.0.0.251:5353", []byte("who")),
			send(unix.SOCK_RAW, unix.IPPROTO_ICMP, "1.1.1.1:0", echo),
			connectWithOptions(t, n, "9.9.9.9:444"),
		}
		got := told(t, s.DropLog, connect("192.0.2.99:1").Destination)
		if !slices.Equal(got, want) {
			t.Errorf("told of\n%v, want\n%v", got, want)
		}
	})
}

// connectWithOptions makes the header of the packet as long as can be (ip(7), IP_OPTIONS).
func connectWithOptions(t *testing.T, n *Namespace, to string) nflog.Packet {
	t.Helper()
	at := netip.MustParseAddrPort(to)
	fd := socketInside(t, n, unix.AF_INET, unix.SOCK_STREAM, 0, false)
	const noOperation = "\x01" // RFC 791
	if err := unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, strings.Repeat(noOperation, 40)); err != nil {
		t.Fatal(err)
	}
	_ = dial(fd, sockaddr(at)) // it is refused
	return nflog.Packet{Group: nflog.Refused, Protocol: unix.IPPROTO_TCP, Destination: at, Opens: true}
}

// What no program of the sandbox sends is no attempt of it: the kernel's resets and reports,
// and the gateway's answers to where they cannot go.
func TestOthersPacketsAreNotTold(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		path := create(t)
		s := mustInstall(t, path, pool)
		n := open(t, path)
		from := func(kind int, to string) int { // from an address that has no way back
			fd := socketInside(t, n, unix.AF_INET, kind, 0, false)
			if err := unix.Bind(fd, sockaddr(netip.MustParseAddrPort("198.18.0.9:4444"))); err != nil {
				t.Fatal(err)
			}
			_ = dial(fd, sockaddr(netip.MustParseAddrPort(to))) // nobody answers
			return fd
		}
		from(unix.SOCK_STREAM, "127.0.0.1:9999") // whose reset is the kernel's
		if _, err := unix.Write(from(unix.SOCK_DGRAM, "127.0.0.1:53"), []byte("question")); err != nil {
			t.Fatal(err)
		}
		question := make([]byte, 16)
		_, asker, err := receive(int(s.DNSPacket.Fd()), question)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendto(int(s.DNSPacket.Fd()), []byte("answer"), 0, asker); !errors.Is(err, unix.EPERM) {
			t.Errorf("the answer to 198.18.0.9: %v, want it refused", err)
		}
		group := socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false) // whose reports are the kernel's
		if err := unix.SetsockoptIPMreq(group, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreq{Multiaddr: [4]byte{239, 1, 2, 3}, Interface: gateAddress.As4()}); err != nil {
			t.Fatal(err)
		}
		last := netip.MustParseAddrPort("192.0.2.99:1")
		_ = connectInside(t, n, last.String(), false)
		if got := told(t, s.DropLog, last); len(got) > 0 {
			t.Errorf("told of %v", got)
		}
	})
}

// A sandbox that sends faster than anybody reads loses no count.
func TestDropLogCountsMissedPackets(t *testing.T) {
	needRoot(t)
	path := create(t)
	s := mustInstall(t, path)
	n := open(t, path)
	fd := socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false)
	r, err := nflog.NewReader(s.DropLog)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const many = 5000
	for range many {
		_ = unix.Sendto(fd, []byte("flood"), 0, sockaddr(netip.MustParseAddrPort("8.8.8.8:53"))) // it is refused
	}
	late := time.AfterFunc(10*time.Second, func() { _ = r.Close() })
	defer late.Stop()
	read := uint64(0)
	for {
		var first [1]byte
		if _, _, err := unix.Recvfrom(int(s.DropLog.Fd()), first[:], unix.MSG_DONTWAIT|unix.MSG_PEEK); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		read++
	}
	missed := r.Missed()
	if read+missed != many || missed == 0 {
		t.Errorf("%d were read and %d missed; want %d together, and some missed", read, missed, many)
	}
	if again := r.Missed(); again != 0 {
		t.Errorf("%d were missed once more", again)
	}
	next, err := nflog.NewReader(s.DropLog)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if again := next.Missed(); again != 0 {
		t.Errorf("the next reader missed %d, which the first one told of", again)
	}
}
