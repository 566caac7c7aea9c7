package network

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// Where the services are. Those without another word are in the world, to which the host
// has its only way, a link.
const (
	public    = "93.184.215.14" // HTTP on 80, TLS on 443, an echo on 5432
	elsewhere = "93.184.215.99" // the same, under other names
	private   = "10.9.8.7"      // the same
	mirror    = "10.9.8.8"      // the same; the operator's mirror.example
	metadata  = "169.254.169.254"
	publicV6  = "2606:4700:4700::1111" // the same

	resolver = "127.0.0.53"           // the host's
	own      = "93.184.216.1"         // the host's, and public: the same services, on all of its addresses
	ownV6    = "2606:4700:4700::9999" // the same
	uplink   = "198.51.100.1"         // the host's on the link
	uplinkV6 = "2001:db8:1::1"        // the same
	farEnd   = "198.51.100.2"
	farEndV6 = "2001:db8:1::2"

	// Who runs unconfined comes from these: on the host, and in the world.
	control      = "192.0.2.77"
	controlV6    = "2001:db8::77"
	farControl   = "192.0.2.78"
	farControlV6 = "2001:db8::78"
)

// metadataServices are those of other clouds.
var metadataServices = []string{"169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"}

// farServices are all addresses of the world with services.
var farServices = append([]string{public, elsewhere, private, mirror, metadata, publicV6}, metadataServices...)

// newHost makes a namespace that stands for the host's, and the world.
func newHost() (*world, error) {
	w, err := newWorld(control, controlV6)
	if err != nil {
		return nil, err
	}
	w.dns = newZone()
	if w.far, err = newWorld(farControl, farControlV6); err == nil {
		err = w.join()
	}
	if err == nil {
		err = w.serve()
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// config is what the daemon has to know.
func (w *world) config() string {
	return "network:\n  dns: [" + resolver + "]\n  map: {mirror.example: \"" + mirror + ":80\"}\n" +
		"profiles:\n  web: {network: {allow: [web.example], deny: [bad.web.example]}}\n" +
		"  ready: {}\npools:\n  - {profile: ready, size: 1}\n"
}

// join lays the link. Neither end has to look for the other by IPv6.
func (w *world) join() error {
	const hostMAC, farMAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
	_, err := w.command("ip link add up0 address " + hostMAC + " type veth peer name e0 address " + farMAC + " netns " + w.far.path())
	if err != nil {
		return err
	}
	if w.up, err = w.device("up0"); err != nil {
		return err
	}
	return errors.Join(
		w.connect("up0", farEndV6, farMAC, uplink+"/24", uplinkV6+"/64"),
		w.commands("ip route add default via "+farEnd, "ip route add default via "+farEndV6),
		w.have(own, ownV6, control, controlV6),
		w.far.connect("e0", uplinkV6, hostMAC, farEnd+"/24", farEndV6+"/64"),
		w.far.commands("ip route add "+own+" via "+uplink, "ip route add "+ownV6+" via "+uplinkV6, "ip route add "+control+" via "+uplink, "ip route add "+controlV6+" via "+uplinkV6),
		w.far.have(append([]string{farControl, farControlV6}, farServices...)...),
	)
}

// connect sets up one end of the link.
func (w *world) connect(device, peerV6, peerMAC string, addresses ...string) error {
	lines := []string{"ip link set " + device + " addrgenmode none", "busybox sysctl -w net.ipv6.conf." + device + ".disable_ipv6=0", "ip link set " + device + " up"}
	for _, a := range addresses {
		lines = append(lines, address(a, device))
	}
	return w.commands(append(lines, "ip neigh add "+peerV6+" lladdr "+peerMAC+" dev "+device+" nud permanent")...)
}

// have gives w addresses that are on no link.
func (w *world) have(addresses ...string) error {
	var lines []string
	for _, a := range addresses {
		lines = append(lines, address(a, "lo"))
	}
	return w.commands(lines...)
}

// address is the command that adds one, which can be listened at, at once.
func address(a, device string) string {
	line := "ip addr add " + a + " dev " + device
	if strings.Contains(a, ":") {
		line += " nodad"
	}
	return line
}

func (w *world) commands(lines ...string) error {
	for _, line := range lines {
		if _, err := w.command(line); err != nil {
			return err
		}
	}
	return nil
}

// serve opens the servers of the host and of the world.
func (w *world) serve() error {
	packet, err := w.listenPacket(resolver + ":53")
	if err != nil {
		return err
	}
	go w.dns.serve(packet)
	stream, err := w.listen(resolver + ":53")
	if err != nil {
		return err
	}
	go w.dns.serveTCP(stream)
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	if err := w.serveAt("", cert); err != nil {
		return err
	}
	for _, addr := range farServices {
		if err := w.far.serveAt(addr, cert); err != nil {
			return err
		}
	}
	overTLS, err := w.far.listen(public + ":853")
	if err != nil {
		return err
	}
	go greetTLS(overTLS, cert)
	return nil
}

// harmless are the controls, on devices that are no sandbox's, and what keeps the link.
func (w *world) harmless(p packet) bool {
	return (p.device == loIndex || p.device == w.up) && controls(control, controlV6, farControl, farControlV6)(p) || w.keepsLink(p)
}

// keepsLink reports whether a packet asks for an address on the link, or tells to which
// groups its ends listen (RFC 3810).
func (w *world) keepsLink(p packet) bool {
	ends := []netip.Addr{netip.IPv6Unspecified(), netip.MustParseAddr(uplinkV6), netip.MustParseAddr(farEndV6)}
	return p.device == w.up && (p.what == "ethertype 0x0806" || p.what == "protocol 0 to ff02::16" && slices.Contains(ends, p.from.Addr()))
}

// sends is a packet of a process of the host that does not say from where: the kernel
// does.
func (w *world) sends(what string, to netip.Addr) expectation {
	e := expectation{what: what, device: w.up, from: netip.MustParseAddr(uplink)}
	switch {
	case to.IsLoopback():
		e.device, e.from = loIndex, netip.MustParseAddr("127.0.0.1")
	case to == netip.MustParseAddr(own) || to == netip.MustParseAddr(ownV6):
		e.device, e.from = loIndex, to
	case to.Is6():
		e.from = netip.MustParseAddr(uplinkV6)
	}
	return e
}
