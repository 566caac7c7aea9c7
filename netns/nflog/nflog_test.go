package nflog

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// header is the begin of a packet to 192.0.2.7 or 2001:db8::7, with ports and flags of TCP.
func header(version, protocol byte, port uint16, flags byte) []byte {
	var b []byte
	if version == 4 {
		b = append(make([]byte, 16), 192, 0, 2, 7)
		b[0], b[9] = 0x45, protocol
	} else {
		to := netip.MustParseAddr("2001:db8::7").As16()
		b = append(make([]byte, 24), to[:]...)
		b[0], b[6] = 0x60, protocol
	}
	return append(b, 0x80, 0, byte(port>>8), byte(port), 0, 0, 0, 0, 0, 0, 0, 0, 0, flags)
}

func TestPacketIsRead(t *testing.T) {
	const syn, ack = 0x02, 0x10
	to4, to6 := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	for name, tc := range map[string]struct {
		bytes []byte
		want  Packet
		ok    bool
	}{
		"begin of a connection": {header(4, unix.IPPROTO_TCP, 443, syn), Packet{Protocol: unix.IPPROTO_TCP, Destination: netip.AddrPortFrom(to4, 443), Opens: true}, true},
		"its answer":            {header(4, unix.IPPROTO_TCP, 443, syn|ack), Packet{Protocol: unix.IPPROTO_TCP, Destination: netip.AddrPortFrom(to4, 443)}, true},
		"IPv6":                  {header(6, unix.IPPROTO_TCP, 80, syn), Packet{Protocol: unix.IPPROTO_TCP, Destination: netip.AddrPortFrom(to6, 80), Opens: true}, true},
		"UDP":                   {header(6, unix.IPPROTO_UDP, 53, 0), Packet{Protocol: unix.IPPROTO_UDP, Destination: netip.AddrPortFrom(to6, 53), Opens: true}, true},
		"ICMP has no port":      {header(4, unix.IPPROTO_ICMP, 9, 0), Packet{Protocol: unix.IPPROTO_ICMP, Destination: netip.AddrPortFrom(to4, 0), Opens: true}, true},
		"cut off":               {header(4, unix.IPPROTO_TCP, 443, syn)[:22], Packet{Protocol: unix.IPPROTO_TCP, Destination: netip.AddrPortFrom(to4, 0)}, true},
		"a header that lies":    {append([]byte{0x4f}, header(4, unix.IPPROTO_UDP, 53, 0)[1:24]...), Packet{Protocol: unix.IPPROTO_UDP, Destination: netip.AddrPortFrom(to4, 0), Opens: true}, true},
		"too short":             {header(4, unix.IPPROTO_TCP, 443, syn)[:19], Packet{}, false},
		"no IP":                 {append([]byte{0x10}, make([]byte, 60)...), Packet{}, false},
		"nothing":               {nil, Packet{}, false},
	} {
		var p Packet
		if ok := p.read(tc.bytes); ok != tc.ok || p != tc.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, p, ok, tc.want, tc.ok)
		}
	}
}

// message is one of the kernel's, of a packet that was logged to group.
func message(group Group, packet []byte) []byte {
	b := append([]byte{0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, byte(group)}, byte(4+len(packet)), 0, 9, 0)
	b = append(b, packet...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	b[0] = byte(len(b))
	return b
}

// Which rule told of a packet is its group alone.
func TestGroups(t *testing.T) {
	for _, group := range []Group{Refused, Limited} {
		b := message(group, header(4, unix.IPPROTO_UDP, 53, 0))
		if p, ok := parsePacket(b); !ok || p.Group != group || p.Destination.Port() != 53 {
			t.Errorf("group %d: %+v, %t", group, p, ok)
		}
	}
}

// The bytes may be anything: nothing of them may be more than wrong.
func FuzzParse(f *testing.F) {
	f.Add(message(Limited, header(6, unix.IPPROTO_UDP, 53, 0)))
	f.Add(append([]byte{200, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 100, 0, 9, 0}, header(4, unix.IPPROTO_TCP, 80, 2)...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		parsePacket(b)
		var p Packet
		p.read(b)
	})
}

// The time of a packet is after it was sent, however long it was waited for.
func TestReadIsWhenItWaited(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	r, err := NewReader(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	times := make(chan time.Time, 1)
	time.AfterFunc(20*time.Millisecond, func() { times <- time.Now(); _, _ = unix.Write(pair[1], []byte{1}) })
	_, at, err := r.receive() // which began before it was sent
	sent := <-times
	if err != nil || at.Before(sent) || !at.Before(time.Now()) {
		t.Errorf("sent at %v, read at %v: %v", sent, at, err)
	}
}

// What was taken from the socket is not done with until the next one is asked for.
func TestSettled(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	r, err := NewReader(socket)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want bool) {
		t.Helper()
		if got, err := r.Settled(); got != want || err != nil {
			t.Errorf("%s: %t, %v", when, got, err)
		}
	}
	expect("at first", true)
	if _, err := unix.Write(pair[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	expect("while it waits", false)
	if _, _, err := r.receive(); err != nil {
		t.Fatal(err)
	}
	expect("when it is read", false)
	late := time.AfterFunc(50*time.Millisecond, func() { _ = r.Close() })
	defer late.Stop()
	_, _, _ = r.receive() // which ends by that
	if r.busy.Load() {
		t.Error("when the next one is asked for")
	}
}

func TestReaderEndsWithItsSocket(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	socket := os.NewFile(uintptr(pair[0]), "socket")
	r, err := NewReader(socket)
	if err := errors.Join(err, socket.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(pair[1], header(4, unix.IPPROTO_TCP, 80, 2)); err != nil { // of nobody that is the kernel
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := r.Next(); ended <- err }()
	time.Sleep(10 * time.Millisecond)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Next of a closed socket found a packet")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Next does not end")
	}
}
