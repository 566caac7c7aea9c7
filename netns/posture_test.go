package netns

import (
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestHarmlessRoutes(t *testing.T) {
	loopback := cidr("127.0.0.0/8")
	for name, tc := range map[string]struct {
		route netlink.Route
		want  bool
	}{
		"loopback":             {netlink.Route{LinkIndex: loIndex, Dst: loopback}, true},
		"loopback v6":          {netlink.Route{LinkIndex: loIndex, Dst: cidr("::1/128")}, true},
		"refusal of all":       {netlink.Route{Type: unix.RTN_UNREACHABLE}, true},
		"default":              {netlink.Route{LinkIndex: loIndex}, false},
		"default v6":           {netlink.Route{LinkIndex: loIndex, Dst: cidr("::/0")}, false},
		"another link":         {netlink.Route{LinkIndex: loIndex + 1, Dst: loopback}, false},
		"no link":              {netlink.Route{Dst: loopback}, false},
		"by a gateway":         {netlink.Route{LinkIndex: loIndex, Dst: loopback, Gw: net.IPv4(127, 0, 0, 2)}, false},
		"by another family":    {netlink.Route{LinkIndex: loIndex, Dst: loopback, Via: &netlink.Via{}}, false},
		"by several":           {netlink.Route{LinkIndex: loIndex, Dst: loopback, MultiPath: []*netlink.NexthopInfo{{}}}, false},
		"elsewhere through lo": {netlink.Route{LinkIndex: loIndex, Dst: cidr("198.18.0.0/15")}, false},
	} {
		if got := harmless(tc.route); got != tc.want {
			t.Errorf("%s: harmless = %v; want %v", name, got, tc.want)
		}
	}
}

// Each change below is one that Check must not miss.
func TestCheckFindsEveryDifference(t *testing.T) {
	sysctl := func(key, value string) func() error {
		return func() error { return writeSysctls([]Sysctl{{Key: key, Value: value}}) }
	}
	for name, tc := range map[string]struct {
		change func() error
		want   string
	}{
		"link": {func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out0"}, PeerName: "out1"})
		}, "link"},
		"lo down":    {func() error { return netlink.LinkSetDown(lo()) }, "link"},
		"address":    {func() error { return addAddress("10.1.2.3/24") }, "address"},
		"address v6": {func() error { return addAddress("fd00::1/64") }, "address"},
		"route": {func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: loIndex, Dst: cidr("0.0.0.0/0"), Scope: netlink.SCOPE_LINK})
		}, "route"},
		"route elsewhere": {func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: loIndex, Dst: cidr("192.0.2.0/24"), Scope: netlink.SCOPE_LINK, Table: 77})
		}, "route"},
		"route v6":   {func() error { return netlink.RouteAdd(&netlink.Route{LinkIndex: loIndex, Dst: cidr("2001:db8::/32")}) }, "route"},
		"forwarding": {sysctl("net.ipv4.ip_forward", "1"), "sysctl net.ipv4.ip_forward"},
		"ping":       {sysctl("net.ipv4.ping_group_range", "0 2147483647"), "sysctl net.ipv4.ping_group_range"},
		"ports":      {sysctl("net.ipv4.ip_unprivileged_port_start", "0"), "sysctl net.ipv4.ip_unprivileged_port_start"},
		"ipv6":       {sysctl("net.ipv6.conf.default.disable_ipv6", "0"), "sysctl net.ipv6.conf.default.disable_ipv6"},
		"localnet":   {sysctl("net.ipv4.conf.lo.route_localnet", "1"), "sysctl net.ipv4.conf.lo.route_localnet"},
	} {
		t.Run(name, func(t *testing.T) {
			path := create(t)
			if err := open(t, path).Do(tc.change); err != nil {
				t.Fatal(err)
			}
			diffs, err := Check(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range diffs {
				if d.Name == tc.want {
					return
				}
			}
			t.Errorf("Check = %v; want a difference of %q", diffs, tc.want)
		})
	}
}

func lo() netlink.Link { return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: loIndex}} }

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err) // a constant of this file
	}
	return n
}

func addAddress(s string) error {
	a, err := netlink.ParseAddr(s)
	if err != nil {
		return err
	}
	return netlink.AddrAdd(lo(), a)
}

// A namespace that a sandbox's own root could configure must be noticed.
func TestCheckFindsAForeignOwner(t *testing.T) {
	needRoot(t)
	path := newPath(t)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	ns := foreignNamespace(t)
	if err := unix.Mount(ns, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	diffs, err := Check(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(diffs) == 0 || diffs[0].Name != "owner" {
		t.Errorf("Check = %v; want a difference of the owner", diffs)
	}
}
