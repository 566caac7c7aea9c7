package netns

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns/reserved"
)

func bridgeConfig() BridgeConfig {
	return BridgeConfig{Instance: "caisson-test", Subnet: netip.MustParsePrefix("10.87.0.0/24"), Resolvers: []netip.Addr{netip.MustParseAddr("10.53.0.1")}}
}

func TestBridgeOffered(t *testing.T) {
	if err := bridgeConfig().Offered(); err != nil {
		t.Error(err)
	}
	gapped := bridgeConfig()
	gapped.AirGapped = true
	for reason, c := range map[string]BridgeConfig{"has not set it up": {}, "air-gapped": gapped} {
		err := c.Offered()
		if sbxerr.Of(err) != sbxerr.NetworkMode || !strings.Contains(err.Error(), reason) || sbxerr.RemedyOf(err) == "" {
			t.Errorf("%+v: %v (remedy %q)", c, err, sbxerr.RemedyOf(err))
		}
		if _, err := c.wire(0); err == nil {
			t.Errorf("%+v gives an address", c)
		}
	}
}

func TestBridgeValidate(t *testing.T) {
	for _, tt := range []struct{ subnet, resolver, want string }{
		{"10.87.0.0/22", "10.53.0.1", ""},
		{"100.64.0.0/16", "9.9.9.9", ""},
		{"10.87.0.0/24", "10.53.0.1", "254 addresses for ids.blocks = 512"},
		{"10.87.0.0/31", "10.53.0.1", "0 addresses"},
		{"10.87.0.1/16", "10.53.0.1", "without bits after it"},
		{"fd00::/64", "10.53.0.1", "no IPv4 prefix"},
		{"93.184.0.0/16", "10.53.0.1", "not private"},
		{"8.0.0.0/4", "10.53.0.1", "without bits"},
		{"0.0.0.0/0", "10.53.0.1", "not private"},
		{"10.87.0.0/16", "127.0.0.53", "network.bridge.dns"},
		{"10.87.0.0/16", "2620:fe::9", "network.bridge.dns"},
		{"10.87.0.0/16", "0.0.0.0", "network.bridge.dns"},
	} {
		c := BridgeConfig{Subnet: netip.MustParsePrefix(tt.subnet), Resolvers: []netip.Addr{netip.MustParseAddr(tt.resolver)}}
		err := c.Validate(512)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s, %s: %v, want %q", tt.subnet, tt.resolver, err, tt.want)
		}
	}
}

// F25: every sandbox has an address of its own within the subnet, and neither the
// first nor the last of it.
func TestBridgeAddresses(t *testing.T) {
	c := bridgeConfig()
	seen := map[netip.Addr]bool{}
	for n := range c.capacity() {
		w, err := c.wire(n)
		if err != nil {
			t.Fatal(err)
		}
		last := w.address.As4()[3]
		if seen[w.address] || !c.Subnet.Contains(w.address) || last == 0 || last == 255 {
			t.Fatalf("sandbox %d has %s", n, w.address)
		}
		seen[w.address] = true
	}
	if _, err := c.wire(c.capacity()); sbxerr.Of(err) != sbxerr.NetworkMode {
		t.Errorf("past the end: %v", err)
	}
	c.Subnet = netip.MustParsePrefix("10.87.0.0/16")
	if w, err := c.wire(255); err != nil || w.address.String() != "10.87.1.0" {
		t.Errorf("sandbox 255: %v %v", w, err)
	}
}

// The kernel bounds names: of links to 15 characters, of chains to 28.
func TestBridgeNames(t *testing.T) {
	c := bridgeConfig()
	if name := c.outer(99999); len(name) > 15 {
		t.Errorf("link %q is too long", name)
	}
	for _, f := range []family{familyV4, familyV6} {
		for _, h := range c.hostTables(f) {
			for _, chain := range h.chains {
				if len(chain.name) > 28 {
					t.Errorf("chain %q is too long", chain.name)
				}
			}
		}
	}
	other := c
	other.Instance = "caisson"
	if c.linkPrefix() == other.linkPrefix() || c.table() == other.table() || c.chain("") == other.chain("") {
		t.Error("two instances have the same names")
	}
}

// Every address that the modes by name call not public is refused here too.
func TestBridgeRefusesWhatIsNotPublic(t *testing.T) {
	for _, addr := range []string{
		"0.0.0.0", "10.1.2.3", "10.87.0.9", "100.100.100.200", "127.0.0.1", "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.31.0.1", "192.0.0.192",
		"192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.251", "239.255.255.250", "240.0.0.1", "255.255.255.255",
	} {
		a := netip.MustParseAddr(addr)
		if _, refused := reserved.Of(a); !refused {
			t.Errorf("%s is not refused", addr)
		}
	}
	for _, addr := range []string{"1.1.1.1", "93.184.215.14", "172.32.0.1", "192.0.1.1", "168.63.129.17", "100.128.0.1", "223.255.255.255"} {
		a := netip.MustParseAddr(addr)
		if _, refused := reserved.Of(a); refused {
			t.Errorf("%s is refused", addr)
		}
	}
}

// foreignTables have rules of others, which are neither compared nor touched.
func foreignTables(t *testing.T) *memoryTables {
	t.Helper()
	m := newMemory()
	for _, line := range []string{
		"mangle THEIRS -s 10.0.0.0/8 -j RETURN", "mangle PREROUTING -j THEIRS", "nat POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE", "filter FORWARD -j DROP",
	} {
		m.add(t, line)
	}
	return m
}

// differencesOf compares all hooks.
func differencesOf(t *testing.T, m *memoryTables, want []hook) (found []Difference) {
	t.Helper()
	for _, h := range want {
		diffs, err := compareHook(m, familyV4, h)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, diffs...)
	}
	return found
}

func mendAll(m *memoryTables, want []hook) (err error) {
	for _, h := range want {
		err = errors.Join(err, mend(m, h))
	}
	return err
}

func TestMendAndClean(t *testing.T) {
	c := bridgeConfig()
	want := c.hostTables(familyV4)
	m := foreignTables(t)
	missing := 0
	for _, h := range want {
		missing += len(h.jumps) + len(h.chains)
	}
	if diffs := differencesOf(t, m, want); len(diffs) != missing {
		t.Errorf("without any: %v", diffs)
	}
	if err := mendAll(m, want); err != nil {
		t.Fatal(err)
	}
	if diffs := differencesOf(t, m, want); len(diffs) > 0 {
		t.Errorf("mended: %v", diffs)
	}
	for _, h := range want {
		for _, broken := range h.chains {
			_ = m.ClearChain(h.name, broken.name)
			if diffs := differencesOf(t, m, want); len(diffs) != 1 {
				t.Errorf("flushed %s %s: %v", h.name, broken.name, diffs)
			}
			if err := mend(m, h); err != nil {
				t.Fatal(err)
			}
			if diffs := differencesOf(t, m, want); len(diffs) > 0 {
				t.Errorf("mended %s: %v", broken.name, diffs)
			}
		}
		for _, j := range h.jumps {
			_ = m.Delete(h.name, j.from, "-j", j.to)
			if diffs := differencesOf(t, m, want); len(diffs) != 1 {
				t.Errorf("without the jump from %s %s: %v", h.name, j.from, diffs)
			}
			if err := mend(m, h); err != nil {
				t.Fatal(err)
			}
			first := m.chain(h.name, j.from).rules[0].spec == j.spec()
			if diffs := differencesOf(t, m, want); len(diffs) > 0 || first == j.last {
				t.Errorf("mended the jump from %s %s: %v; it is the first: %t", h.name, j.from, diffs, first)
			}
		}
	}
	for range 2 {
		for _, table := range []string{"mangle", "nat", "filter"} {
			if err := clean(m, table, c.chain("")); err != nil {
				t.Fatal(err)
			}
		}
		if left, before := m.String(), foreignTables(t).String(); left != before {
			t.Errorf("left:\n%s\nbefore:\n%s", left, before)
		}
	}
}

// Wherever mending ends, packets are marked only if all that refuses is there.
func TestMendFailsClosed(t *testing.T) {
	c := bridgeConfig()
	want := c.hostTables(familyV4)
	for failAt := 1; ; failAt++ {
		m := foreignTables(t)
		if err := mendAll(m, want); err != nil {
			t.Fatal(err)
		}
		m.chain("mangle", c.chain("PRE")).rules = nil // somebody flushed it
		m.calls, m.failAt = 0, failAt
		err := mend(m, want[0])
		live, whole := m.chain("mangle", c.chain("PRE")), want[0].chains[1]
		passes := slices.ContainsFunc(live.rules, func(r rule) bool { return r.spec == "-g "+c.chain("PASS") })
		if passes && !slices.Equal(live.lines(), whole.lines()) {
			t.Errorf("call %d fails: it passes, and not all is refused: %v", failAt, live)
		}
		if err == nil {
			if failAt < 10 {
				t.Errorf("only %d calls", failAt)
			}
			return
		}
	}
}

// What one of these rules refuses another does as well, or a route that is not there, so
// that no packet tells of one that is gone.
func TestBridgeRefusesTwice(t *testing.T) {
	c := bridgeConfig()
	w, err := c.wire(4)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, f := range []family{familyV4, familyV6} {
		for _, h := range c.hostTables(f) {
			for _, chain := range h.chains {
				have[string(f)+" "+h.name+" "+chain.name] = strings.Join(chain.lines(), "; ")
			}
			for _, j := range h.jumps {
				have[string(f)+" "+h.name+" "+j.from] = j.to
			}
		}
		for _, table := range c.innerTables(f, w) {
			for _, chain := range table.chains {
				have[string(f)+" inside "+chain.name] = strings.Join(chain.lines(), "; ")
			}
		}
	}
	in, out := "-i "+c.linkPrefix()+"+", "-o "+c.linkPrefix()+"+"
	for _, tt := range []struct{ where, what string }{
		{"iptables mangle " + c.chain("PRE"), "-m addrtype ! --dst-type UNICAST -j DROP"}, // the host
		{"iptables filter " + c.chain("IN"), in + " -j DROP"},
		{"iptables filter " + c.chain("FWD"), in + " " + out + " -j DROP"}, // other sandboxes
		{"iptables mangle " + c.chain("PRE"), "-d 10.0.0.0/8 -j DROP"},
		{"iptables filter " + c.chain("FWD"), in + " -j DROP"}, // what is not marked
		{"iptables filter " + c.chain("FWD"), out + " -j DROP"},
		{"iptables filter INPUT", c.chain("IN")},
		{"iptables filter FORWARD", c.chain("FWD")},
		{"ip6tables filter " + c.chain("IN"), in + " -j DROP"}, // IPv6
		{"ip6tables filter " + c.chain("FWD"), in + " -j DROP"},
		{"ip6tables filter " + c.chain("FWD"), out + " -j DROP"},
		{"ip6tables filter INPUT", c.chain("IN")},
		{"ip6tables filter FORWARD", c.chain("FWD")},
		{"iptables inside OUTPUT", "! -s " + w.address.String() + "/32 -j " + chainRefuse}, // another's address
		{"iptables inside OUTPUT", "-d 169.254.0.0/16 -j " + chainRefuse},
		{"iptables inside " + chainRefuse, " -j " + chainAnswer},
		{"iptables inside " + chainLimit, " -j " + chainAnswer},
		{"iptables inside " + chainAnswer, "! -s " + w.address.String() + "/32 -j DROP"},
		{"iptables inside " + chainAnswer, " -j REJECT --reject-with icmp"},
		{"iptables inside INPUT", "-A INPUT -j DROP"},
		{"iptables inside FORWARD", "-A FORWARD -j DROP"},
		{"iptables inside OUTPUT", "-A OUTPUT -j DROP"},
		{"ip6tables inside INPUT", "-A INPUT -j DROP"},
		{"ip6tables inside FORWARD", "-A FORWARD -j DROP"},
		{"ip6tables inside OUTPUT", "-A OUTPUT -j DROP"},
	} {
		if !strings.Contains(have[tt.where], tt.what) {
			t.Errorf("%s: there is no %q in %q", tt.where, tt.what, have[tt.where])
		}
	}
}

func TestBridgeDescribe(t *testing.T) {
	c := bridgeConfig()
	text := strings.Join(c.Describe(4), "\n")
	for _, want := range []string{
		"10.87.0.5/32", c.outer(4), "iptables -t filter -A OUTPUT -j DROP: ", "ip6tables -t filter -A OUTPUT -j DROP: ", "on the host: iptables -t nat -A " + c.chain("POST"),
		"on the host: iptables -t mangle -I PREROUTING 1 -j " + c.chain("PRE"), "net.ipv4.conf." + c.outer(4) + ".rp_filter = 1", "-d 169.254.0.0/16",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not described:\n%s", want, text)
		}
	}
	w, err := c.wire(4)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(innerSysctls(), outerSysctls(w)...) {
		if s.Why == "" || s.IPv6 != strings.HasPrefix(s.Key, "net.ipv6.") {
			t.Errorf("setting %+v", s)
		}
	}
	if lines := (BridgeConfig{}).Describe(0); lines != nil {
		t.Errorf("not offered, and described: %q", lines)
	}
}
