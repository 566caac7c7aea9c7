package netns

import (
	"fmt"
	"net/netip"
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
			"policy":             fmt.Sprintf("iptables-%s -w -P FORWARD DROP", b),
			"policy of IPv6":     fmt.Sprintf("ip6tables-%s -w -P OUTPUT DROP", b),
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
				mustInstall(t, path, pool)
				wantNoDifference(t, path, pool)
				runInside(t, open(t, path), line)
				if diffs, err := Check(path, &Redirect{Prefixes: []netip.Prefix{pool}}); err != nil || len(diffs) == 0 {
					t.Errorf("Check = %v, %v; want a difference", diffs, err)
				}
			})
		}
	})
}

// The rules of the first namespace are listed, and those of others compared by their digest,
// which takes no command. Traffic changes nothing of it.
func TestRulesAreListedOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		g := Redirect{Prefixes: []netip.Prefix{pool}}
		first, other, changed, half := create(t), create(t), create(t), create(t)
		for _, path := range []string{first, other, changed, half} {
			mustInstall(t, path, pool)
		}
		checked.Clear() // as if the process had begun anew
		for _, to := range []string{"198.18.0.5:443", "9.9.9.9:443", "[2001:db8::1]:80"} {
			_ = connectInside(t, open(t, other), to, false)
		}
		runInside(t, open(t, changed), fmt.Sprintf("iptables-%s -w -R OUTPUT 1 -d 126.0.0.0/7 -o lo -j ACCEPT", b))
		runInside(t, open(t, half), fmt.Sprintf("ip6tables-%s -w -D OUTPUT 4", b))
		saved := useCommands(t, nil)
		if _, err := Check(other, &g); sbxerr.Of(err) != sbxerr.NetRule {
			t.Errorf("the control, with nothing listed and no commands: %v", err)
		}
		useCommands(t, commandsFor(b))
		wantNoDifference(t, first, pool)
		binaryDirs = []string{saved}
		wantNoDifference(t, other, pool)
		for _, path := range []string{changed, half} {
			if _, err := Check(path, &g); sbxerr.Of(err) != sbxerr.NetRule {
				t.Errorf("other rules, and no commands: %v", err)
			}
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
		"of the drop log gone": func() error { r := dropRoute[familyV4]; return netlink.RouteDel(&r) },
		"of the drop log elsewhere": func() error {
			r := dropRoute[familyV4]
			r.Src = nil
			return netlink.RouteReplace(&r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := create(t)
			_ = mustInstall(t, path, pool).Close()
			if err := open(t, path).Do(change); err != nil {
				t.Fatal(err)
			}
			g := Redirect{Prefixes: []netip.Prefix{pool}}
			if diffs, err := Check(path, &g); err != nil || len(diffs) == 0 || diffs[0].Name != "route" {
				t.Errorf("Check = %v, %v; want a difference of a route", diffs, err)
			}
			mustInstall(t, path, pool)
			wantNoDifference(t, path, pool)
		})
	}
	path := create(t)
	mustInstall(t, path, pool)
	if diffs, err := Check(path, nil); err != nil || len(diffs) != 3 || diffs[0].Name != "route" {
		t.Errorf("Check for mode none of a namespace with a redirect = %v, %v; want the routes of the pool and of the drop log", diffs, err)
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
			s := mustInstall(t, path, pool)
			useCommands(t, commandsFor(is))
			checked.Clear() // as if the process had begun anew
			if _, err := Check(path, &Redirect{Prefixes: []netip.Prefix{pool}}); sbxerr.Of(err) != sbxerr.NetRule {
				t.Errorf("Check without the commands that see the rules = %v; want %s", err, sbxerr.NetRule)
			}
			links := commandsFor(is)
			for name, target := range commandsFor(was) {
				links[name+"-"+string(was)] = target
			}
			useCommands(t, links)
			wantNoDifference(t, path, pool)
			_ = s.Close()
			mustInstall(t, path, pool)
			wantNoDifference(t, path, pool)
		})
	}
}
