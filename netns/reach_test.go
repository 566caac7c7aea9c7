package netns

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNothingGetsOut(t *testing.T) {
	n := open(t, create(t))
	host, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	dial := func(network, address string) error {
		c, err := net.DialTimeout(network, address, 2*time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := dial("tcp4", host.Addr().String()); err != nil {
		t.Fatalf("control: the host cannot reach its own listener: %v", err)
	}
	for _, tc := range []struct {
		network, address string
		want             error
	}{
		{"tcp4", host.Addr().String(), unix.ECONNREFUSED}, // its own lo, on which nobody listens
		{"tcp4", "192.0.2.1:80", unix.ENETUNREACH},
		{"udp4", "192.0.2.1:53", unix.ENETUNREACH},
		{"tcp4", "169.254.169.254:80", unix.ENETUNREACH},
		{"tcp6", "[2001:db8::1]:80", unix.ENETUNREACH},
		{"tcp6", "[fe80::1%lo]:80", unix.ENETUNREACH},
	} {
		err := n.Do(func() error { return rawDial(tc.network, tc.address) })
		if !errors.Is(err, tc.want) {
			t.Errorf("connect %s %s from inside = %v; want %v", tc.network, tc.address, err, tc.want)
		}
	}
}

// rawDial connects on the calling thread: net.Dial may resolve and race on
// goroutines, which Do forbids. An address that the kernel takes is no error.
func rawDial(network, address string) error {
	kind := unix.SOCK_STREAM
	if strings.HasPrefix(network, "udp") {
		kind = unix.SOCK_DGRAM
	}
	var to unix.Sockaddr
	domain := unix.AF_INET
	if strings.HasSuffix(network, "6") {
		domain = unix.AF_INET6
		a, err := net.ResolveTCPAddr("tcp6", address)
		if err != nil {
			return err
		}
		to = &unix.SockaddrInet6{Port: a.Port, Addr: [16]byte(a.IP.To16()), ZoneId: loIndex}
	} else {
		a, err := net.ResolveTCPAddr("tcp4", address)
		if err != nil {
			return err
		}
		to = &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, to)
}

// Test suites that agents run bind to both loopback addresses.
func TestLoopbackWorksInside(t *testing.T) {
	n := open(t, create(t))
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		err := n.Do(func() error {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			defer l.Close()
			network := "tcp4"
			if strings.HasPrefix(address, "[") {
				network = "tcp6"
			}
			return rawDial(network, l.Addr().String())
		})
		if err != nil {
			t.Errorf("listen on and connect to %s inside: %v", address, err)
		}
	}
}
