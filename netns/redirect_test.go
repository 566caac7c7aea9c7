package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// hostCommands is where Debian has the commands for both backends.
const hostCommands = "/usr/sbin"

// useCommands makes links to commands of the host all that is found: from the
// name that is looked for to the host's.
func useCommands(t testing.TB, links map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, target := range links {
		target = filepath.Join(hostCommands, target)
		if _, err := os.Stat(target); err != nil {
			need.Missing(t, target)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	saved := binaryDirs
	t.Cleanup(func() { binaryDirs = saved })
	binaryDirs = []string{dir}
	return dir
}

// commandsFor are the links that make b the host's backend.
func commandsFor(b backend) map[string]string {
	links := map[string]string{}
	for _, f := range []family{familyV4, familyV6} {
		links[string(f)] = string(f) + "-" + string(b)
	}
	return links
}

// eachBackend runs test with commands of each backend in turn.
func eachBackend(t *testing.T, test func(*testing.T, backend)) {
	needRoot(t)
	for _, b := range []backend{backendNFT, backendLegacy} {
		t.Run(string(b), func(t *testing.T) {
			useCommands(t, commandsFor(b))
			test(t, b)
		})
	}
}

// programAndInstall is what is done with a namespace that is not out of a stock.
func programAndInstall(path string, g Redirect) (*Sockets, error) {
	if _, err := Program(path); err != nil {
		return nil, err
	}
	return InstallRedirect(path, g)
}

func mustInstall(t testing.TB, path string, prefixes ...netip.Prefix) *Sockets {
	t.Helper()
	s, err := programAndInstall(path, Redirect{Prefixes: prefixes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed them
	return s
}

func wantNoDifference(t *testing.T, path string, prefixes ...netip.Prefix) {
	t.Helper()
	if diffs, err := Check(path, &Redirect{Prefixes: prefixes}); err != nil || len(diffs) > 0 {
		t.Errorf("Check = %v, %v; want no difference", diffs, err)
	}
}

// runInside runs a command of iptables, by its name on the host, in n.
func runInside(t *testing.T, n *Namespace, line string) {
	t.Helper()
	fields := strings.Fields(line)
	var out []byte
	err := n.Do(func() (err error) {
		out, err = exec.Command(filepath.Join(hostCommands, fields[0]), fields[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// socketInside opens a socket whose operations end after 300 ms. Bound to lo and
// an address of it, it needs no route.
func socketInside(t *testing.T, n *Namespace, domain, kind, proto int, toLo bool) int {
	t.Helper()
	fd := -1
	err := n.Do(func() (err error) {
		asSandbox(func() { fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto) })
		if err != nil {
			return err
		}
		wait := unix.Timeval{Usec: 300_000}
		err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
		if toLo {
			err = errors.Join(err, unix.BindToDevice(fd, "lo"), unix.Bind(fd, &unix.SockaddrInet4{Addr: gateAddress.As4()}))
		}
		return err
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// again calls f until it is not interrupted: with a timeout, the signals of Go's own
// scheduler end what a socket does (signal(7)).
func again(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func dial(fd int, to unix.Sockaddr) error {
	return again(func() error { return unix.Connect(fd, to) })
}

func receive(fd int, into []byte) (n int, from unix.Sockaddr, err error) {
	err = again(func() error {
		n, from, err = unix.Recvfrom(fd, into, 0)
		return err
	})
	return n, from, err
}

// asSandbox lets what open opens belong to a user of a sandbox, none of whom is root.
func asSandbox(open func()) {
	const somebody = 100_000
	_ = unix.Setfsuid(somebody) // of this thread alone
	defer func() { _ = unix.Setfsuid(0) }()
	open()
}

func sockaddr(to netip.AddrPort) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	return &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}

func domain(to netip.AddrPort) int {
	if to.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// connectInside connects by TCP.
func connectInside(t *testing.T, n *Namespace, to string, toLo bool) error {
	t.Helper()
	addr := netip.MustParseAddrPort(to)
	return dial(socketInside(t, n, domain(addr), unix.SOCK_STREAM, 0, toLo), sockaddr(addr))
}

// accepted takes the next connection of a listener and returns where it was
// meant to go, by SO_ORIGINAL_DST of linux/netfilter_ipv4.h.
func accepted(t *testing.T, listener *os.File) string {
	t.Helper()
	fd, _, err := unix.Accept4(int(listener.Fd()), unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const originalDestination = 80
	answer, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, originalDestination) // any structure with room for a sockaddr_in
	if err != nil {
		t.Fatal(err)
	}
	in := answer.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(in[4:8])), uint16(in[2])<<8|uint16(in[3])).String()
}

// wantLed connects to an address and expects the gateway to see it.
func wantLed(t *testing.T, n *Namespace, s *Sockets, to string) {
	t.Helper()
	if err := connectInside(t, n, to, false); err != nil {
		t.Errorf("connect to %s: %v", to, err)
		return
	}
	if got := accepted(t, s.TCP); got != to {
		t.Errorf("the gateway sees a connection to %s; want %s", got, to)
	}
}

func TestTCPToThePrefixesReachesTheGateway(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		path := create(t)
		n := open(t, path)
		for _, to := range []string{"198.18.0.5:443", "10.1.255.1:22", "192.0.2.7:80"} {
			if err := connectInside(t, n, to, false); !errors.Is(err, unix.ENETUNREACH) {
				t.Fatalf("control: connect to %s without a redirect = %v", to, err)
			}
		}
		s := mustInstall(t, path, pool, office, one)
		for _, to := range []string{"198.18.0.5:443", "198.19.255.255:5432", "198.18.0.6:1", "198.18.0.6:53", "10.1.255.1:22", "192.0.2.7:80"} {
			wantLed(t, n, s, to)
		}
		for _, to := range []string{"192.0.2.8:80", "10.2.0.1:22", "198.20.0.1:80", "9.9.9.9:443"} {
			if err := connectInside(t, n, to, false); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect to %s = %v; want %v", to, err, unix.ECONNREFUSED)
			}
		}
		wantNoDifference(t, path, pool, office, one)
	})
}

// All that has no route of its own goes to lo. The control is the redirect with a rule
// that does not ask what is local.
func TestLiteralAddressesAreNotLed(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		path := create(t)
		n := open(t, path)
		s := mustInstall(t, path, pool)
		const literal = "9.9.9.9:443"
		run := func(line string) { t.Helper(); runInside(t, n, fmt.Sprintf("iptables-%s -w %s", b, line)) }
		run("-t nat -I OUTPUT -p tcp -j REDIRECT --to-ports 1")
		if err := connectInside(t, n, literal, true); err != nil {
			t.Fatalf("control: connect to %s bound to lo = %v", literal, err)
		}
		if got := accepted(t, s.TCP); got != literal {
			t.Fatalf("control: the gateway sees %s", got)
		}
		run("-t nat -D OUTPUT 1")
		for _, toLo := range []bool{true, false} {
			if err := connectInside(t, n, literal, toLo); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect to %s, bound to lo: %v = %v; want %v", literal, toLo, err, unix.ECONNREFUSED)
			}
		}
		if err := connectInside(t, n, "198.18.0.5:443", true); err != nil {
			t.Errorf("connect to the pool bound to lo: %v", err)
		}
	})
}

// answers says which probes of the pool are answered from inside by anything
// but the gateway.
func answers(t *testing.T, n *Namespace) map[string]bool {
	t.Helper()
	target := netip.MustParseAddrPort("198.18.0.5:7000")
	server := socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false)
	if err := unix.Bind(server, &unix.SockaddrInet4{Port: 7000}); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	client := socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false)
	var buf [64]byte
	if unix.Sendto(client, []byte("hello"), 0, sockaddr(target)) == nil {
		size, _, err := receive(server, buf[:])
		got["udp"] = err == nil && string(buf[:size]) == "hello"
	}
	echo := socketInside(t, n, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, false)
	request := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0} // type, code, checksum (RFC 792)
	if unix.Sendto(echo, request, 0, sockaddr(target)) == nil {
		for deadline := time.Now().Add(time.Second); time.Now().Before(deadline) && !got["icmp"]; {
			size, _, err := receive(echo, buf[:])
			if err != nil {
				break
			}
			got["icmp"] = size >= 28 && buf[20] == 0 // an echo reply; the request itself is seen too
		}
	}
	if sctp, err := sctpSocket(n); err == nil {
		defer unix.Close(sctp)
		// An abort of the own stack is an answer as well.
		err := dial(sctp, sockaddr(target))
		got["sctp"] = err == nil || errors.Is(err, unix.ECONNREFUSED)
	}
	return got
}

// sctpSocket is an error where the kernel has no SCTP.
func sctpSocket(n *Namespace) (fd int, err error) {
	err = n.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 300_000})
	})
	return fd, err
}

// A local route alone makes the sandbox's own stack answer in the place of
// every address of the prefix; the rules keep it from that.
func TestNothingButTCPIsAnswered(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		bare := create(t)
		r := route(pool)
		if err := open(t, bare).Do(func() error { return netlink.RouteAdd(&r) }); err != nil {
			t.Fatal(err)
		}
		control := answers(t, open(t, bare))
		if !control["udp"] || !control["icmp"] {
			t.Fatalf("control: with a route and no rules, answered are %v", control)
		}
		path := create(t)
		mustInstall(t, path, pool)
		got := answers(t, open(t, path))
		for probe, answered := range control {
			if got[probe] {
				t.Errorf("%s to the pool is answered", probe)
			}
			t.Logf("%s: without rules %v, with %v", probe, answered, got[probe])
		}
	})
}

func TestIPv6IsDropped(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		const to = "[2001:db8::1]:7000"
		try := func(path string) error {
			n := open(t, path)
			l := socketInside(t, n, unix.AF_INET6, unix.SOCK_STREAM, 0, false)
			if err := errors.Join(unix.Bind(l, &unix.SockaddrInet6{Port: 7000}), unix.Listen(l, 1)); err != nil {
				t.Fatal(err)
			}
			err := n.Do(func() error {
				return netlink.RouteAdd(&netlink.Route{LinkIndex: loIndex, Dst: cidr("2001:db8::/32"), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL})
			})
			if err != nil {
				t.Fatal(err)
			}
			return connectInside(t, n, to, false)
		}
		if err := try(create(t)); err != nil {
			t.Fatalf("control: connect to %s with a route and no rules = %v", to, err)
		}
		path := create(t)
		mustInstall(t, path, pool)
		if err := connectInside(t, open(t, path), to, false); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to %s = %v; want %v", to, err, unix.ECONNREFUSED)
		}
		if err := try(path); err == nil {
			t.Errorf("connect to %s with a route: it is answered", to)
		}
	})
}

func TestLoopbackWorksBesideAGate(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		path := create(t)
		s := mustInstall(t, path, pool)
		n := open(t, path)
		for _, address := range []string{"127.0.0.1:7000", "127.9.9.9:7000", "[::1]:7000"} {
			to := netip.MustParseAddrPort(address)
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
				server := socketInside(t, n, domain(to), kind, 0, false)
				if err := unix.Bind(server, sockaddr(to)); err != nil {
					t.Fatal(err)
				}
				if kind == unix.SOCK_STREAM {
					if err := errors.Join(unix.Listen(server, 1), connectInside(t, n, address, false)); err != nil {
						t.Errorf("TCP to %s: %v", address, err)
					}
					continue
				}
				client := socketInside(t, n, domain(to), kind, 0, false)
				var buf [8]byte
				err := unix.Sendto(client, []byte("hello"), 0, sockaddr(to))
				if size, _, received := receive(server, buf[:]); err != nil || received != nil || size != 5 {
					t.Errorf("UDP to %s: %v, %v", address, err, received)
				}
			}
		}
		if err := connectInside(t, n, "127.0.0.1:7001", false); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("TCP to a port on which nobody listens = %v; want %v", err, unix.ECONNREFUSED)
		}
		if err := connectInside(t, n, "127.0.0.1:53", false); err != nil {
			t.Errorf("TCP to the DNS port: %v", err)
		}
		client := socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false)
		var buf [8]byte
		err := unix.Sendto(client, []byte("hello"), 0, sockaddr(netip.MustParseAddrPort("127.0.0.1:53")))
		if size, _, received := receive(int(s.DNSPacket.Fd()), buf[:]); err != nil || received != nil || size != 5 {
			t.Errorf("UDP to the DNS port: %v, %v", err, received)
		}
	})
}

// Nobody in the sandbox may take the gateway's place while it is away.
func TestTheGatewaysPortsCannotBeTaken(t *testing.T) {
	path := create(t)
	bind := func(user bool, port int) error {
		return open(t, path).Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if user { // this thread alone; it ends with Do
				if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
					return e
				}
			}
			return unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: gateAddress.As4()})
		})
	}
	for _, port := range []int{GatePort, DNSPort} {
		if err := bind(false, port); err != nil {
			t.Fatalf("control: bind port %d as root = %v", port, err)
		}
		if err := bind(true, port); !errors.Is(err, unix.EACCES) {
			t.Errorf("bind port %d as a user = %v; want %v", port, err, unix.EACCES)
		}
	}
	for _, port := range []int{LowestPort, 80, 443} {
		if err := bind(true, port); err != nil {
			t.Errorf("bind port %d as a user = %v", port, err)
		}
	}
}

func TestSocketsAreInsideAndListen(t *testing.T) {
	path := create(t)
	n := open(t, path)
	var s *Sockets
	if err := n.Do(func() (err error) { s, err = openSockets(); return err }); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{s.TCP, s.DNSStream} {
		l, err := net.FileListener(f)
		if err != nil {
			t.Errorf("%s: %v", f.Name(), err)
			continue
		}
		_ = l.Close()
	}
	if pc, err := net.FilePacketConn(s.DNSPacket); err != nil {
		t.Error(err)
	} else {
		_ = pc.Close()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := (&Sockets{}).Close(); err != nil {
		t.Errorf("close none: %v", err)
	}
}

// Neither end of a connection to the gateway has the host's control of congestion, which may
// pace: for a link that is none that halves a stream.
func TestNothingIsPaced(t *testing.T) {
	needRoot(t)
	path := create(t)
	n := open(t, path)
	if err := n.Do(func() error { return writeSysctls([]Sysctl{{Key: "net.ipv4.tcp_congestion_control", Value: "bbr"}}) }); err != nil {
		t.Logf("this kernel has no bbr: what it uses is replaced all the same: %v", err)
	}
	s := mustInstall(t, path, pool)
	client := socketInside(t, n, unix.AF_INET, unix.SOCK_STREAM, 0, false)
	if err := dial(client, sockaddr(netip.MustParseAddrPort("198.18.0.5:443"))); err != nil {
		t.Fatal(err)
	}
	taken, _, err := unix.Accept4(int(s.TCP.Fd()), unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(taken)
	for end, fd := range map[string]int{"the sandbox": client, "the gateway": taken} {
		if got, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || got != "reno" {
			t.Errorf("%s has %q, %v", end, got, err)
		}
	}
}
