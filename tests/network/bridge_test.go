package network

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/tests/harness"
)

// Where things are in the tests of the mode bridge, beside those of the world.
const (
	farResolver  = "10.53.0.53" // private, and in the configuration
	bridgeConfig = "network: {bridge: {subnet: 10.87.0.0/16, dns: [" + farResolver + "]}}\n"
)

// house is a host of its own, with a daemon that offers the mode. The world knows the way
// to the sandboxes' addresses: what leaves unmasked is answered too.
type house struct {
	world, host *world
	daemon      *harness.Daemon
}

func newHouse(t *testing.T) *house {
	t.Helper()
	near, err := newHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := near.close(); err != nil {
			t.Error(err)
		}
	})
	if err := near.watch(); err != nil {
		t.Fatal(err)
	}
	h := &house{world: near.far, host: near}
	near.run(t, "busybox sysctl -w net.ipv4.conf.up0.forwarding=1")
	h.world.run(t, "ip addr add "+farResolver+"/32 dev lo")
	h.world.run(t, "ip route add 10.87.0.0/16 via "+uplink)
	h.serve(t)
	h.daemon = harness.New(t)
	h.daemon.Wrap, h.daemon.Config = near.enter(), bridgeConfig
	near.watchInside(h.daemon)
	h.daemon.Launch(t)
	t.Cleanup(func() {
		if !h.daemon.Runs() {
			h.daemon.Launch(t)
		}
		h.daemon.Stop(t)
		h.daemon.CheckNothingLeft(t)
	})
	return h
}

// reaches has s send such packets while t lasts, which leave with the host's address.
func (h *house) reaches(t *testing.T, s sandbox, what ...string) {
	t.Helper()
	h.sends(t, s, what...)
	for _, w := range what {
		h.host.lookout.expect(t, expectation{what: w, device: h.host.up, from: netip.MustParseAddr(uplink), must: true})
	}
}

// sends has s send such packets to the host while t lasts.
func (h *house) sends(t *testing.T, s sandbox, what ...string) {
	t.Helper()
	own, device := linkOf(t, s)
	for _, w := range what {
		h.host.inside[h.daemon].of(t, s).expect(t, expectation{what: w, from: own, must: true})
		h.host.lookout.expect(t, expectation{what: w, device: device, from: own, must: true})
	}
}

// serve opens what else is in the world: echo servers that are not TCP, and a resolver.
func (h *house) serve(t *testing.T) {
	t.Helper()
	for _, addr := range []string{public, private} {
		p, err := h.world.listenPacket(addr + ":5432")
		if err != nil {
			t.Fatal(err)
		}
		go echoPackets(p)
	}
	p, err := h.world.listenPacket(farResolver + ":53")
	if err != nil {
		t.Fatal(err)
	}
	go h.host.dns.serve(p)
	l, err := h.world.listen(farResolver + ":5432")
	if err != nil {
		t.Fatal(err)
	}
	go echoAll(l)
}

func echoPackets(p net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := p.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = p.WriteTo(buf[:n], from)
	}
}

func (h *house) create(t *testing.T, flags ...string) sandbox {
	t.Helper()
	return createOn(t, h.daemon, append([]string{"--network", "bridge"}, flags...)...)
}

// addressOf is the only address of s that is not of loopback.
func addressOf(t *testing.T, s sandbox) string {
	t.Helper()
	address, _ := linkOf(t, s)
	return address.String()
}

// linkOf is the address of s on its link, and the host's end of that.
func linkOf(t *testing.T, s sandbox) (address netip.Addr, device int) {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+s.netns(), "busybox", "ip", "addr", "show", "dev", "eth0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said := string(out)
	_, text, _ := strings.Cut(said, "eth0@if")
	if _, err := fmt.Sscanf(text, "%d:", &device); err != nil {
		t.Fatalf("no other end in %q: %v", said, err)
	}
	for _, field := range strings.Fields(said) {
		if p, err := netip.ParsePrefix(field); err == nil {
			return p.Addr(), device
		}
	}
	t.Fatalf("no address in %q", said)
	return netip.Addr{}, 0
}

// within opens an echo server in s.
func within(t *testing.T, s sandbox) {
	t.Helper()
	ns, err := netns.Open(s.netns())
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if err := ns.Do(func() error { l, err = net.Listen("tcp4", ":5432"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), ns.Close() })
	go echoAll(l)
}

// traces is all that there is in the host's namespace, but for what happened.
func (h *house) traces(t *testing.T) string {
	t.Helper()
	return harness.NetworkTraces(t, h.host.enter())
}

// UDP, TCP and ICMP reach what is public, and nothing else: P088, P090, P092, P099.
//
//caisson:kernel
func TestBridge(t *testing.T) {
	h := newHouse(t)
	s, other := h.create(t), h.create(t)
	within(t, other)
	address, neighbour := addressOf(t, s), addressOf(t, other)
	h.reaches(t, s, "syn "+public+":5432", "syn "+public+":80", "udp "+public+":5432", "protocol 1 to "+public, question("A", "web.example", farResolver), question("AAAA", "web.example", farResolver))
	h.sends(t, s, "syn "+own+":5432") // it looks public
	client := filepath.Join(clientDir(t), "client")
	check(t, s, []attempt{
		{"TCP", []string{"echo", public + ":5432"}, "echo ping"},
		{"HTTP", []string{"http", "http://" + public + "/"}, "200 I am " + public},
		{"UDP", []string{"udp", public + ":5432"}, "echo ping"},
		{"ICMP", []string{"ping", public}, "echo of"},
		{"its resolver", []string{"query", farResolver + ":53", "web.example", "A"}, "A Success 1"},
		{"a name, by the system's resolver", []string{"http", "http://web.example/"}, "200 I am " + public},
		{"its own address", []string{"spoof", address, public + ":5432"}, "echo ping"},
	})
	checkSettings(t, s, settings+bridgeSettings)
	for _, a := range []struct {
		attempt
		control *world // where the same succeeds; nil where nobody else could
	}{
		{attempt{"P088 a private address", []string{"echo", private + ":5432"}, "error:"}, h.host},
		{attempt{"P088 by UDP", []string{"udp", private + ":5432"}, "error:"}, h.host},
		{attempt{"P090 the metadata service", []string{"http", "http://" + metadata + "/"}, "error:"}, h.host},
		{attempt{"the resolver on another port", []string{"echo", farResolver + ":5432"}, "error:"}, h.host},
		{attempt{"the host, by its public address", []string{"echo", own + ":5432"}, "error:"}, h.world},
		{attempt{"the host, by its uplink's", []string{"echo", uplink + ":5432"}, "error:"}, h.world},
		{attempt{"P092 the neighbour", []string{"echo", neighbour + ":5432"}, "error:"}, nil},
		{attempt{"P099 the neighbour's address", []string{"spoof", neighbour, public + ":5432"}, "error:"}, nil},
		{attempt{"IPv6", []string{"echo", "[" + publicV6 + "]:5432"}, "error:"}, h.world},
	} {
		t.Run(a.name, func(t *testing.T) {
			if a.control != nil {
				if said := a.control.try(client, a.args...); strings.Contains(said, "error:") {
					t.Fatalf("the control: %q: %q", a.args, said)
				}
			}
			if said := s.try(a.args...); !strings.Contains(said, a.want) {
				t.Errorf("%q: %q, want %q", a.args, said, a.want)
			}
		})
	}
	if said := other.try("echo", neighbour+":5432"); said != "echo ping" {
		t.Fatalf("the control, the neighbour by itself: %q", said)
	}
	for name, from := range map[string]*world{"the host": h.host, "the world": h.world} {
		if said := from.try(client, "echo", neighbour+":5432"); !strings.Contains(said, "error:") {
			t.Errorf("from %s a sandbox is reached: %q", name, said)
		}
	}
}

// P092: what is refused does not even arrive on the host's end, where the control
// does.
func TestBridgePackets(t *testing.T) {
	h := newHouse(t)
	s, other := h.create(t), h.create(t)
	neighbour := addressOf(t, other)
	h.reaches(t, s, "udp "+public+":9") // the control
	s.try("udp", public+":9")
	for _, args := range [][]string{
		{"udp", "224.0.0.251:5353"}, {"udp", "239.255.255.250:1900"}, {"udp", "255.255.255.255:67"}, {"udp", private + ":9"}, {"echo", private + ":9"},
		{"udp", "169.254.1.1:9"}, {"ping", metadata}, {"ping", neighbour}, {"udp", neighbour + ":9"}, {"udp", farResolver + ":54"}, {"spoof", neighbour, public + ":9"},
		{"udp", "[ff02::fb%eth0]:5353"}, {"udp", "[fe80::1%eth0]:9"},
	} {
		if said := s.try(args...); !strings.Contains(said, "error:") {
			t.Errorf("%q: %q", args, said)
		}
	}
}

// What a sandbox shows of its network is what was compared with the kernel.
func TestBridgeIsInspected(t *testing.T) {
	h := newHouse(t)
	s := h.create(t)
	var detail struct {
		Network string
		Posture []struct{ Name, Declared, Live string }
	}
	h.daemon.Run(t, "inspect", "--posture", s.id).JSONIn(t, "sandbox", &detail)
	seen := false
	for _, c := range detail.Posture {
		seen = seen || c.Name == "network" && c.Declared == "bridge" && c.Live == "bridge"
	}
	if detail.Network != "bridge" || !seen {
		t.Errorf("%+v", detail)
	}
	h.daemon.Refused(t, "SBX-404", "run", "--json", "--network", "bridge", "--allow", "web.example", "--", "true")
	h.daemon.Refused(t, "SBX-403", "update", "--json", "--allow", "web.example", s.id)
	h.daemon.Refused(t, "SBX-403", "policy", "check", "--json", "--sandbox", s.id, "https://web.example/")
	h.host.run(t, "busybox sysctl -w net.ipv4.conf.up0.forwarding=0")
	h.daemon.Refused(t, "SBX-403", "run", "--json", "--network", "bridge", "--", "true")
	if text := h.daemon.Run(t, "spec", "--network", "bridge", "--", "true").Stdout; !strings.Contains(text, "MASQUERADE") {
		t.Errorf("the spec does not show the rules:\n%s", text)
	}
}

// F20: whatever table somebody flushes, nothing private is reached. The doctor reports it.
// The next sandbox mends it, and so does the next daemon.
func TestBridgeFlushed(t *testing.T) {
	h := newHouse(t)
	s := h.create(t)
	h.reaches(t, s, "udp "+public+":5432")
	if said := s.try("udp", public+":5432"); said != "echo ping" {
		t.Fatalf("before: %q", said)
	}
	if said := h.host.try(filepath.Join(clientDir(t), "client"), "echo", private+":5432"); said != "echo ping" {
		t.Fatalf("the control, a private address from the host: %q", said)
	}
	const changed = "somebody changed what"
	whole := h.traces(t)
	mend := map[string]func(){
		"the next sandbox": func() { h.daemon.Run(t, "rm", "-f", h.create(t).id) },
		"the next daemon":  func() { h.daemon.Kill(t); h.daemon.Launch(t) },
	}
	for _, table := range []string{"filter", "mangle", "nat"} {
		for by, mends := range mend {
			h.host.run(t, "iptables -w -t "+table+" -F")
			if said := s.try("echo", private+":5432"); !strings.Contains(said, "error:") {
				t.Errorf("%s is flushed: a private address: %q", table, said)
			}
			if said := s.try("udp", public+":5432"); (said == "echo ping") != (table == "filter") {
				t.Errorf("%s is flushed: a public address: %q", table, said)
			}
			if r := h.daemon.Try("doctor"); !strings.Contains(r.Stdout, changed) {
				t.Errorf("%s is flushed: the doctor says\n%s", table, r.Stdout)
			}
			mends()
			if now := h.traces(t); now != whole {
				t.Errorf("%s is not as it was with %s:\n%s\nbefore:\n%s", table, by, now, whole)
			}
			s.await(t, 5*time.Second, "echo ping", "udp", public+":5432")
		}
	}
	if r := h.daemon.Try("doctor"); strings.Contains(r.Stdout, changed) {
		t.Errorf("mended, the doctor says\n%s", r.Stdout)
	}
	if log := h.daemon.Log(); !strings.Contains(log, changed+" the network mode bridge needs") {
		t.Errorf("nothing is said of it:\n%s", log)
	}
}

// Nothing is left of it: not after the last sandbox, not by a daemon that was killed,
// not by one that does not offer the mode any more.
func TestBridgeLeavesNothing(t *testing.T) {
	h := newHouse(t)
	before := h.traces(t)
	gone := func(when string) {
		t.Helper()
		if after := h.traces(t); after != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", when, after, before)
		}
	}
	a, b := h.create(t), h.create(t)
	if h.traces(t) == before {
		t.Fatal("the control: nothing is seen of two sandboxes")
	}
	h.reaches(t, b, "udp "+public+":5432")
	h.daemon.Run(t, "rm", "-f", a.id)
	if said := b.try("udp", public+":5432"); said != "echo ping" {
		t.Errorf("the second without the first: %q", said)
	}
	h.daemon.Kill(t)
	h.daemon.Launch(t)
	if said := b.try("udp", public+":5432"); said != "echo ping" {
		t.Errorf("with the next daemon: %q", said)
	}
	h.daemon.Run(t, "rm", "-f", b.id)
	gone("after the last")
	h.create(t)
	h.daemon.Stop(t)
	gone("after the daemon")
	h.daemon.Launch(t)
	h.create(t)
	h.daemon.Kill(t)
	h.daemon.Config = ""
	h.daemon.Launch(t)
	gone("after one that does not offer it")
	h.daemon.Refused(t, "SBX-403", "run", "--json", "--network", "bridge", "--", "true")
}
