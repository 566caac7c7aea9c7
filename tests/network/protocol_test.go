package network

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/tests/harness"
)

// pingable lets root of the world send echo requests: a namespace of netns.Create lets
// nobody.
func pingable(t *testing.T) {
	t.Helper()
	group := func(text string) {
		if err := host.ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte(text), 0) }); err != nil {
			t.Fatal(err)
		}
	}
	group("0 0")
	t.Cleanup(func() { group("1 0") })
}

// optional are the protocols that a kernel may lack.
var optional = []string{"sctp", "dccp", "udplite", "mptcp", "vsock"}

// crossing is an attempt to send something, and what is seen of it outside.
type crossing struct {
	attempt
	seen string
}

// crossings are of each protocol but TCP, and of UDP to each kind of destination.
func crossings() (list []crossing) {
	add := func(name, seen, want string, args ...string) {
		list = append(list, crossing{attempt{name, args, want}, seen})
	}
	const noSocket = "error: no socket: operation not permitted" // the kernel is not asked whether it has it
	for kind, number := range map[string]string{"sctp": "132", "dccp": "33", "udplite": "136", "icmp": "1", "igmp": "2", "ipip": "4", "gre": "47", "esp": "50", "raw": "1"} {
		add("P089 "+kind, "protocol "+number+" to "+public, noSocket, "packet", kind, public)
	}
	add("P089 mptcp", "", "error: no socket: protocol not supported", "packet", "mptcp", public)
	add("P030 tcp by hand", "protocol 6 to "+public, noSocket, "packet", "rawtcp", public)
	add("P030 icmp6", "protocol 58 to ::1", noSocket, "packet", "icmp6", public)
	add("P030 link", "protocol 1 to "+public, noSocket, "packet", "link", public)
	add("P026 vsock", "", noSocket, "packet", "vsock", public)
	add("P089 ping", "protocol 1 to "+public, "error:", "ping", public)
	add("P089 QUIC", "udp "+public+":443", "error:", "udp", public+":443")
	add("P089 UDP", "udp "+public+":5432", "error:", "udp", public+":5432")
	for name, addr := range map[string]string{"P094 multicast DNS": "224.0.0.251", "P092 multicast": "239.255.255.250"} {
		add(name, "udp "+addr+":80", "error: a socket, but: operation not permitted", "packet", "udp", addr)
	}
	return list
}

// P030, P089, P094: what is neither TCP nor UDP does not exist in a sandbox, and of
// UDP nothing gets out, also where a rule names the address and so a route leads
// there. Outside, each is sent, or the kernel has not got it.
//
//caisson:kernel
func TestProtocols(t *testing.T) {
	reaches(t, public+":5432")
	s := create(t, "--allow", "web.example", "--allow", public+"/32:80+443+5432")
	check(t, s, []attempt{{"the rule is good", []string{"echo", public + ":5432"}, "echo ping"}})
	list := crossings()
	out := startCapture(t, host.ns)
	absent := crossOutside(t, list, out)
	in := startCapture(t, inspected(t, s))
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			if said := s.try(c.args...); !strings.Contains(said, c.want) {
				t.Errorf("%q: %q, want %q", c.args, said, c.want)
			}
			if absent[c.name] {
				harness.Except(t, "this kernel has no such protocol: there is no control", slices.Contains(optional, c.args[1]))
			}
		})
	}
	for where, c := range map[string]*capture{"on the host": out, "in the sandbox": in} {
		if what := slices.DeleteFunc(c.take(), host.keepsLink); len(what) > 0 {
			t.Errorf("%s: %q", where, what)
		}
	}
}

// crossOutside makes the controls, and returns by name which of them the kernel lacks.
func crossOutside(t *testing.T, list []crossing, out *capture) (absent map[string]bool) {
	t.Helper()
	pingable(t)
	host.run(t, "ip route add 224.0.0.0/4 dev lo")
	t.Cleanup(func() { host.run(t, "ip route del 224.0.0.0/4 dev lo") })
	for _, port := range []string{":443", ":5432"} {
		echoDatagrams(t, public+port)
	}
	absent = map[string]bool{}
	for _, c := range list {
		said := outside(t, c.args...)
		absent[c.name] = lacksProtocol(said)
		if strings.Contains(said, "error:") && !absent[c.name] {
			t.Errorf("the control: %q: %q", c.args, said)
		}
	}
	seen := out.take()
	for _, c := range list {
		if !absent[c.name] && c.seen != "" && !saw(seen, c.seen) {
			t.Errorf("the control of %s was not seen in %q", c.name, seen)
		}
	}
	return absent
}

// echoDatagrams answers at an address of the world while t lasts.
func echoDatagrams(t *testing.T, addr string) {
	t.Helper()
	var p net.PacketConn
	if err := host.far.ns.Do(func() (err error) { p, err = net.ListenPacket("udp4", addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	go echoPackets(p)
}

// lacksProtocol reports whether a socket was refused because the kernel has none of
// the kind.
func lacksProtocol(said string) bool {
	return slices.ContainsFunc([]string{"protocol not supported", "socket type not supported", "address family not supported by protocol"}, func(reason string) bool {
		return strings.HasSuffix(said, "no socket: "+reason)
	})
}

// inspected opens the namespace of s.
func inspected(t *testing.T, s sandbox) *netns.Namespace {
	t.Helper()
	ns, err := netns.Open(s.netns())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// Commands with a network may read what there is of it, and change nothing: no command
// has the capability that the kernel asks for.
func TestChanges(t *testing.T) {
	reaches(t, "web.example:80")
	s := create(t, "--allow", "web.example")
	own := []string{"nsenter", "--net=" + s.netns(), "--"}
	before := harness.NetworkTraces(t, own)
	if list := s.of.Run(t, "exec", s.id, "--", "ifconfig").Stdout; !strings.Contains(list, "127.0.0.1") {
		t.Errorf("nothing is listed: %q", list)
	}
	for _, command := range []string{
		"ip route add 192.0.2.0/24 dev lo", "ip route del local 127.0.0.0/8 dev lo table local", "ip addr add 192.0.2.1/32 dev lo", "ip link add way0 type veth peer name way1",
		"ip rule add priority 7 lookup main", "ip link set lo mtu 1280", "ip link set lo down",
	} {
		t.Run(command, func(t *testing.T) {
			harness.NewNamespace(t).Run(t, "busybox "+command) // the control
			r := s.of.Try(append([]string{"exec", s.id, "--"}, strings.Fields(command)...)...)
			if r.Code == 0 || !strings.Contains(r.Stderr, "Operation not permitted") {
				t.Errorf("inside: %+v", r)
			}
		})
	}
	if after := harness.NetworkTraces(t, own); after != before {
		t.Errorf("the sandbox has:\n%s\nbefore:\n%s", after, before)
	}
	check(t, s, []attempt{{"what is allowed", []string{"http", "http://web.example/"}, "200 I am " + public}})
}
