package policy

import (
	"net/netip"
	"testing"
)

func TestClassify(t *testing.T) {
	for in, want := range map[string]Class{
		"9.9.9.9":                  {"public", Public},
		"2a00:1450:4001::1":        {"public", Public},
		"0.0.0.0":                  {"this network", Never},
		"0.1.2.3":                  {"this network", Never},
		"224.0.0.251":              {"multicast", Never},
		"240.0.0.1":                {"reserved", Never},
		"255.255.255.255":          {"reserved", Never},
		"10.255.255.255":           {"private (RFC 1918)", Private},
		"172.16.0.0":               {"private (RFC 1918)", Private},
		"172.31.255.255":           {"private (RFC 1918)", Private},
		"172.32.0.0":               {"public", Public},
		"192.168.1.1":              {"private (RFC 1918)", Private},
		"127.0.0.1":                {"loopback", Private},
		"127.255.255.254":          {"loopback", Private},
		"169.254.1.1":              {"link-local (cloud metadata)", Spelled},
		"169.254.42.42":            {"link-local (cloud metadata)", Spelled},
		"64:ff9b::a9fe:2a2a":       {"link-local (cloud metadata) inside NAT64 (RFC 6052)", Spelled},
		"169.254.169.254":          {"cloud metadata", Spelled},
		"169.254.170.2":            {"cloud metadata", Spelled},
		"100.100.100.200":          {"cloud metadata", Spelled},
		"168.63.129.16":            {"cloud metadata", Spelled},
		"fd00:ec2::254":            {"cloud metadata", Spelled},
		"100.64.0.1":               {"carrier NAT (RFC 6598)", Private},
		"100.128.0.1":              {"public", Public},
		"198.18.0.1":               {"benchmark (RFC 2544)", Private},
		"198.19.255.255":           {"benchmark (RFC 2544)", Private},
		"198.20.0.0":               {"public", Public},
		"203.0.113.7":              {"documentation", Private},
		"::":                       {"unspecified", Never},
		"::1":                      {"loopback", Private},
		"fe80::1":                  {"link-local (cloud metadata)", Spelled},
		"fec0::1":                  {"site-local", Private},
		"fc00::1":                  {"unique local (RFC 4193)", Private},
		"fdff::1":                  {"unique local (RFC 4193)", Private},
		"ff02::1":                  {"multicast", Never},
		"100::1":                   {"outside of global unicast", Private},
		"2001:db8::1":              {"documentation", Private},
		"::ffff:9.9.9.9":           {"IPv4-mapped IPv6", Private},
		"::ffff:10.0.0.1":          {"IPv4-mapped IPv6", Private},
		"::ffff:169.254.169.254":   {"cloud metadata inside IPv4-mapped IPv6", Spelled},
		"::ffff:0.0.0.0":           {"this network inside IPv4-mapped IPv6", Never},
		"::169.254.169.254":        {"cloud metadata inside IPv4-compatible IPv6", Spelled},
		"::ffff:0:169.254.169.254": {"cloud metadata inside IPv4-translated IPv6", Spelled},
		"64:ff9b::9.9.9.9":         {"NAT64 (RFC 6052)", Private},
		"64:ff9b::a9fe:a9fe":       {"cloud metadata inside NAT64 (RFC 6052)", Spelled},
		"64:ff9b:1::a9fe:a9fe":     {"cloud metadata inside NAT64 (RFC 8215)", Spelled},
		"64:ff9b:1:a9fe:a9:fe00::": {"cloud metadata inside NAT64 (RFC 8215)", Spelled},
		"2002:a9fe:a9fe::1":        {"cloud metadata inside 6to4", Spelled},
		"2002:909:909::1":          {"6to4", Private},
		"2001:0:1:2:3:4:5601:5601": {"cloud metadata inside Teredo", Spelled},
		"2001:10::1":               {"protocol assignments", Private},
	} {
		if got := Classify(netip.MustParseAddr(in)); got != want {
			t.Errorf("%s: %+v, want %+v", in, got, want)
		}
	}
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0")} {
		if got := Classify(addr); got.Grade != Never {
			t.Errorf("%v: %+v", addr, got)
		}
	}
}

// FuzzClassify: the standard library's own predicates are the oracle.
func FuzzClassify(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		if plain := addr.Unmap(); Classify(addr).Grade == Public &&
			(plain.IsPrivate() || plain.IsLoopback() || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain.IsUnspecified() || !plain.IsGlobalUnicast()) {
			t.Fatalf("%s counts as public", addr)
		}
	})
}
