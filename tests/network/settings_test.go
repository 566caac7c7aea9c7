package network

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// settings are those of the kernel that a sandbox's namespace has, below /proc/sys/net,
// whatever the host has. They are written down once more here, as the list of the code
// would agree with itself.
const settings = `ipv4/ip_forward 0
ipv4/ip_unprivileged_port_start 54
ipv4/conf/all/route_localnet 0
ipv4/conf/default/route_localnet 0
ipv4/conf/lo/route_localnet 0
ipv4/conf/all/rp_filter 1
ipv4/conf/default/rp_filter 1
ipv4/conf/all/accept_redirects 0
ipv4/conf/default/accept_redirects 0
ipv4/conf/lo/accept_redirects 0
ipv6/conf/all/forwarding 0
ipv6/conf/default/disable_ipv6 1
ipv6/conf/lo/disable_ipv6 0
`

// Those that not all modes have.
const (
	noPing         = "ipv4/ping_group_range 1 0\n" // no group may open ICMP sockets
	bridgeSettings = `ipv4/ping_group_range 0 2147483647
ipv4/conf/eth0/route_localnet 0
ipv4/conf/eth0/rp_filter 1
ipv4/conf/eth0/accept_redirects 0
ipv6/conf/eth0/disable_ipv6 1
`
)

// A sandbox has the declared settings in every mode; in the mode bridge, see TestBridge.
//
//caisson:kernel
func TestSettings(t *testing.T) {
	for _, mode := range []string{"none", "allow", "open"} {
		t.Run(mode, func(t *testing.T) { checkSettings(t, create(t, "--network", mode), settings+noPing) })
	}
}

// checkSettings fails t unless PID 1 of s has the settings. They are not read by a command
// inside: groups have other numbers there.
func checkSettings(t *testing.T, s sandbox, declared string) {
	t.Helper()
	var detail struct{ PID int }
	s.of.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	line := []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", detail.PID), "--", "cat"}
	var names, values []string
	for setting := range strings.Lines(declared) {
		name, value, _ := strings.Cut(strings.TrimSpace(setting), " ")
		names, values, line = append(names, name), append(values, value), append(line, "/proc/sys/net/"+name)
	}
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	live := strings.Split(strings.TrimSpace(string(out)), "\n") // a line each
	if err != nil || len(live) != len(names) {
		t.Fatalf("%q: %v\n%s", line, err, out)
	}
	for i, name := range names {
		if is := strings.Join(strings.Fields(live[i]), " "); is != values[i] {
			t.Errorf("%s is %q, declared %q", name, is, values[i])
		}
	}
}
