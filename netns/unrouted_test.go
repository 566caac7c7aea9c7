package netns

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnroutedIsRead(t *testing.T) {
	const v4 = "Ip: Forwarding OutNoRoutes InHdrErrors\nIp: 2 7 0\nIcmp: OutNoRoutes\nIcmp: 99\n"
	for name, tc := range map[string]struct {
		v4, v6 string
		want   uint64
		ok     bool
	}{
		"both":                {v4, "Ip6InReceives 3\nIp6OutNoRoutes                  \t5\n", 12, true},
		"without IPv6":        {v4, "", 7, true},
		"no such count":       {"Ip: Forwarding\nIp: 2\n", "", 0, false},
		"fewer numbers":       {"Ip: Forwarding OutNoRoutes\nIp: 2\n", "", 0, false},
		"nothing":             {"", "", 0, false},
		"what is no number":   {"Ip: OutNoRoutes\nIp: x\n", "", 0, false},
		"no number with IPv6": {v4, "Ip6OutNoRoutes -1\n", 0, false},
	} {
		if got, err := summed(tc.v4, tc.v6, "Ip", "OutNoRoutes"); got != tc.want && tc.ok || (err == nil) != tc.ok {
			t.Errorf("%s: %d, %v; want %d", name, got, err, tc.want)
		}
	}
}

// All that is tried where nothing leads anywhere counts, and nothing of what stays inside.
func TestUnrouted(t *testing.T) {
	needRoot(t)
	path := create(t)
	n := open(t, path)
	want := uint64(0)
	expect := func(when string) {
		t.Helper()
		if got := Unrouted(path)[0]; got.Err != nil || got.N != want {
			t.Errorf("%s: %v; want %d", when, got, want)
		}
	}
	expect("at first")
	for _, to := range []string{"127.0.0.1:9", "[::1]:9"} {
		if err := connectInside(t, n, to, false); err == nil {
			t.Errorf("%s is reached", to)
		}
	}
	for _, to := range []string{"127.0.0.1:53", "[::1]:53"} {
		at, before := netip.MustParseAddrPort(to), Unrouted(path)[0].Unheard
		if err := unix.Sendto(socketInside(t, n, domain(at), unix.SOCK_DGRAM, 0, false), []byte("x"), 0, sockaddr(at)); err != nil {
			t.Errorf("send to %s: %v", to, err)
		}
		if got := Unrouted(path)[0].Unheard; got != before+1 {
			t.Errorf("%d datagrams that nobody hears; want %d", got, before+1)
		}
	}
	expect("inside")
	for _, to := range []string{"93.184.215.14:80", "[2606:4700::1]:80"} {
		if err := connectInside(t, n, to, false); err != unix.ENETUNREACH {
			t.Errorf("connect to %s: %v", to, err)
		}
		want++
		expect("a connection to " + to)
		at := netip.MustParseAddrPort(to)
		if err := unix.Sendto(socketInside(t, n, domain(at), unix.SOCK_DGRAM, 0, false), []byte("x"), 0, sockaddr(at)); err != unix.ENETUNREACH {
			t.Errorf("send to %s: %v", to, err)
		}
		want++
		expect("a datagram to " + to)
	}
	var paths []string
	for range 20 {
		paths = append(paths, path+"-absent", path, create(t))
	}
	for i, got := range Unrouted(paths...) {
		if wants := []Count{{}, {N: want}, {}}[i%3]; got.N != wants.N || (got.Err == nil) != (i%3 > 0) {
			t.Errorf("%s: %v; want %d", paths[i], got, wants.N)
		}
	}
}
