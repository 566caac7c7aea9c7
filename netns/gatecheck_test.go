package netns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Each change below is one that Check must not miss.
//
//caisson:host runs iptables a hundred times, which emulation makes a minute; TestLostRulesOpenNothingAndArePutRight checks rules here
func TestCheckFindsWhatIsNotOfTheGate(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		otherBackend := map[backend]backend{backendNFT: backendLegacy, backendLegacy: backendNFT}[b]
		for name, line := range map[string]string{
			"rule gone":          fmt.Sprintf("iptables-%s -w -t nat -F OUTPUT", b),
			"rule of IPv6 gone":  fmt.Sprintf("ip6tables-%s -w -F INPUT", b),
			"policy":             fmt.Sprintf("iptables-%s -w -P FORWARD ACCEPT", b),
			"policy of IPv6":     fmt.Sprintf("ip6tables-%s -w -P OUTPUT ACCEPT", b),
			"rule":               fmt.Sprintf("iptables-%s -w -A OUTPUT -p udp -j ACCEPT", b),
			"rule before":        fmt.Sprintf("iptables-%s -w -I INPUT -j ACCEPT", b),
			"rule elsewhere":     fmt.Sprintf("iptables-%s -w -t nat -A POSTROUTING -j RETURN", b),
			"chain":              fmt.Sprintf("iptables-%s -w -N MINE", b),
			"IPv6 nat":           fmt.Sprintf("ip6tables-%s -w -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 1", b),
			"other backend":      fmt.Sprintf("iptables-%s -w -A OUTPUT -j ACCEPT", otherBackend),
			"other backend IPv6": fmt.Sprintf("ip6tables-%s -w -A OUTPUT -j ACCEPT", otherBackend),
		} {
			t.Run(name, func(t *testing.T) {
				path := create(t)
				mustLead(t, path, pool)
				wantNoDifference(t, path, pool)
				runInside(t, open(t, path), line)
				if diffs, err := Check(path, &Gate{Prefixes: []netip.Prefix{pool}}); err != nil || len(diffs) == 0 {
					t.Errorf("Check = %v, %v; want a difference", diffs, err)
				}
			})
		}
	})
}

func TestCheckFindsRoutesThatAreNotOfTheGate(t *testing.T) {
	needRoot(t)
	for name, change := range map[string]func() error{
		"gone": func() error { r := route(pool); return netlink.RouteDel(&r) },
		"more": func() error { r := route(office); return netlink.RouteAdd(&r) },
		"another source": func() error {
			r := route(pool)
			r.Src = nil
			return netlink.RouteReplace(&r)
		},
		"half of all": func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: loIndex, Dst: cidr("0.0.0.0/1"), Scope: netlink.SCOPE_LINK})
		},
		"of strays gone": func() error { r := strayRoutes[familyV4]; return netlink.RouteDel(&r) },
		"of strays elsewhere": func() error {
			r := strayRoutes[familyV4]
			r.Src = nil
			return netlink.RouteReplace(&r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := create(t)
			_ = mustLead(t, path, pool).Close()
			if err := open(t, path).Do(change); err != nil {
				t.Fatal(err)
			}
			g := Gate{Prefixes: []netip.Prefix{pool}}
			if diffs, err := Check(path, &g); err != nil || len(diffs) == 0 || diffs[0].Name != "route" {
				t.Errorf("Check = %v, %v; want a difference of a route", diffs, err)
			}
			mustLead(t, path, pool)
			wantNoDifference(t, path, pool)
		})
	}
	path := create(t)
	mustLead(t, path, pool)
	if diffs, err := Check(path, nil); err != nil || len(diffs) != 3 || diffs[0].Name != "route" {
		t.Errorf("Check for mode none of a namespace with a gate = %v, %v; want the routes of the pool and of strays", diffs, err)
	}
}

// The host's own command may become one for the other backend while a sandbox
// lives. Its namespace stays with the backend that it has.
func TestTheHostsBackendChanges(t *testing.T) {
	needRoot(t)
	for was, is := range map[backend]backend{backendNFT: backendLegacy, backendLegacy: backendNFT} {
		t.Run(fmt.Sprintf("from %s to %s", was, is), func(t *testing.T) {
			path := create(t)
			useCommands(t, commandsFor(was))
			s := mustLead(t, path, pool)
			useCommands(t, commandsFor(is))
			if _, err := Check(path, &Gate{Prefixes: []netip.Prefix{pool}}); sbxerr.Of(err) != sbxerr.NetRule {
				t.Errorf("Check without the commands that see the rules = %v; want %s", err, sbxerr.NetRule)
			}
			links := commandsFor(is)
			for name, target := range commandsFor(was) {
				family, verb, _ := strings.Cut(name, "-")
				links[strings.TrimSuffix(family+"-"+string(was)+"-"+verb, "-")] = target
			}
			useCommands(t, links)
			wantNoDifference(t, path, pool)
			_ = s.Close()
			mustLead(t, path, pool)
			wantNoDifference(t, path, pool)
		})
	}
}
