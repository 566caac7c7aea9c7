package dns

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A question that waits came when it was sent, not when it is read.
func TestStamps(t *testing.T) {
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	client, err := net.Dial("udp4", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := withStamps(pc)
	ask := func() (begin, end, came time.Time) {
		t.Helper()
		begin = time.Now()
		if _, err := client.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		end = time.Now()
		time.Sleep(100 * time.Millisecond) // it waits to be read: the stamp must not be of the reading
		n, from, err := server.ReadFrom(make([]byte, 10))
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if _, err := server.WriteTo([]byte("!"), from); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Read(make([]byte, 10)); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		return begin, end, stampOf(from)
	}
	if _, _, came := ask(); !came.IsZero() {
		t.Errorf("a socket that tells nothing told %s", came)
	}
	raw, err := pc.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) }); err != nil || set != nil {
		t.Fatal(err, set)
	}
	time.Sleep(50 * time.Millisecond) // the kernel begins with it soon, not at once
	if begin, end, came := ask(); came.Before(begin.Round(0)) || came.After(end.Round(0)) {
		t.Errorf("asked between %s and %s, it came at %s", begin, end, came)
	}
	if !stampOf(pc.LocalAddr()).IsZero() {
		t.Error("an address without a time has one")
	}
}
