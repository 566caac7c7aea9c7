package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Redirect is what a namespace of the modes allow and open has besides lo: TCP
// connections to Prefixes lead to the gateway's sockets, and of the rest it is told.
type Redirect struct {
	// Prefixes are IPv4 and lie outside of 127.0.0.0/8, which inside is the
	// sandbox's own. They may overlap; none means that there is only DNS.
	Prefixes []netip.Prefix
}

// With is r with more prefixes, each once.
func (r Redirect) With(more []netip.Prefix) Redirect {
	r.Prefixes = slices.Clone(r.Prefixes)
	for _, p := range more {
		if !slices.Contains(r.Prefixes, p) {
			r.Prefixes = append(r.Prefixes, p)
		}
	}
	return r
}

// The ports of the gateway's sockets on 127.0.0.1 inside. Both are below LowestPort, so
// nothing in the sandbox can take them, also while there is no gateway.
const (
	GatePort = 1
	DNSPort  = 53
	Resolver = "127.0.0.1" // the address that DNSPort is on

	// LowestPort is net.ipv4.ip_unprivileged_port_start inside: servers take 80 and 443,
	// as they do in other containers.
	LowestPort = DNSPort + 1
)

var (
	gateAddress  = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopbackIPv4 = netip.MustParsePrefix("127.0.0.0/8")
)

const gateRemedy = "name IPv4 addresses outside of 127.0.0.0/8, such as 10.1.0.0/16, or a host name"

// plan returns the routes: one for each prefix, in order, and the drop routes. What
// cannot be led is refused with code sbxerr.NetPolicy, all of it at once.
func (r Redirect) plan(op string) ([]netlink.Route, error) {
	var errs []error
	for _, p := range r.Prefixes {
		switch {
		case !p.IsValid() || p != p.Masked():
			errs = append(errs, fmt.Errorf("lead %q: it is no prefix, or has bits set after it", p))
		case !p.Addr().Is4():
			errs = append(errs, fmt.Errorf("lead %q: connections to literal IPv6 addresses have no way to the gateway", p))
		case p.Overlaps(loopbackIPv4):
			errs = append(errs, fmt.Errorf("lead %q: it holds loopback addresses, which inside are the sandbox's own", p))
		}
	}
	if len(errs) > 0 {
		return nil, sbxerr.WithRemedy(sbxerr.NetPolicy, op, errors.Join(errs...), gateRemedy)
	}
	var routes []netlink.Route
	for _, p := range slices.Compact(slices.SortedFunc(slices.Values(r.Prefixes), netip.Prefix.Compare)) {
		routes = append(routes, route(p))
	}
	known, err := families()
	return append(routes, dropRoutes(known)...), sbxerr.Wrap(sbxerr.Network, op, err)
}

// gateSysctls are settings of a namespace with a redirect, which are no barriers: nobody compares
// them. A sandbox's connections are with the gateway, on lo. Where the host's control of
// congestion paces (tcp_bbr), as is right for the links that the gateway dials by, a stream
// would be paced twice, at half the speed.
var gateSysctls = []Sysctl{
	{Key: "net.ipv4.tcp_congestion_control", Value: "reno", Why: "nothing is congested on the way to the gateway, and nothing is paced"},
}

// Sockets are where the gateway serves one sandbox. They were opened inside its
// namespace and stay there, wherever they are passed to.
type Sockets struct {
	TCP       *os.File // listens on GatePort
	DNSPacket *os.File // UDP on DNSPort
	DNSStream *os.File // listens on DNSPort
	DropLog   *os.File // tells of packets that the rules let go nowhere; for nflog.NewReader
}

// Close closes all that are open.
func (s *Sockets) Close() error {
	var errs []error
	for _, f := range []*os.File{s.TCP, s.DNSPacket, s.DNSStream, s.DropLog} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// backlog bounds the connections that wait for the gateway to accept them. The
// kernel bounds it further (net.core.somaxconn).
const backlog = 4096

// openSockets opens the gateway's sockets in the calling thread's namespace.
func openSockets() (*Sockets, error) {
	s := &Sockets{}
	var errs [4]error
	s.TCP, errs[0] = openSocket("gateway", unix.SOCK_STREAM, GatePort)
	s.DNSPacket, errs[1] = openSocket("dns packets", unix.SOCK_DGRAM, DNSPort)
	s.DNSStream, errs[2] = openSocket("dns streams", unix.SOCK_STREAM, DNSPort)
	s.DropLog, errs[3] = OpenDropLog()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openSocket binds one socket and lets it listen. Connections of an earlier
// gateway that are not quite gone do not keep the port; a socket of it that is
// still open does.
func openSocket(name string, kind, port int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if kind == unix.SOCK_STREAM {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: gateAddress.As4()})
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open socket for %s on %s port %d: %w", name, gateAddress, port, err), f.Close())
	}
	return f, nil
}
