package netns

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// Probe finds out whether this host has namespaces as sandboxes get them. All it
// makes is one without a name that is gone when it returns.
func Probe() []finding.Feature {
	return probeInside(finding.Feature{Name: "network namespace", Needed: true}, func() []finding.Feature {
		return []finding.Feature{probeNamespace(), probeIPv6()}
	})
}

// ProbeFilters finds out, in a namespace of its own too, what iptables can do on
// this host, which modes other than none need.
func ProbeFilters() []finding.Feature {
	return probeInside(finding.Feature{Name: "iptables"}, func() []finding.Feature {
		here, err := openNamespace(threadNS, 0)
		if err != nil {
			return []finding.Feature{{Name: "iptables", Err: err}}
		}
		defer here.Close()
		var v4, v6 []finding.Feature
		var both sync.WaitGroup // each may hang until it is killed
		both.Go(func() { v4 = probeFilter(familyV4, here) })
		both.Go(func() { v6 = probeFilter(familyV6, here) })
		both.Wait()
		return slices.Concat(v4, v6, []finding.Feature{probeDropLog()})
	})
}

// Filters is why no namespace can have a redirect on this host, with code sbxerr.NetRule: it has
// no commands that program rules. Whether they work, ProbeFilters finds out.
func Filters() error {
	families, err := families()
	if err != nil {
		return sbxerr.Wrap(sbxerr.Network, "netns.filters", err)
	}
	var errs []error
	for _, f := range families {
		_, err := findCommand(f, backendAny)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// probeInside returns what probe finds in a new namespace, or in what where there
// is none to be had.
func probeInside(what finding.Feature, probe func() []finding.Feature) (found []finding.Feature) {
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		found = probe()
		return nil
	})
	if err == nil {
		return found
	}
	what.Answer, what.Err = finding.No, fmt.Errorf("unshare network namespace: %w", err)
	if errors.Is(err, unix.EPERM) {
		what.Answer = finding.Unknown // a right is missing, not the feature
	}
	return []finding.Feature{what}
}

// probeNamespace makes the calling thread's new namespace what Create would
// make of it, and looks whether it is that.
func probeNamespace() finding.Feature {
	f := finding.Feature{Name: "network namespace", Needed: true}
	if err := configure(); err != nil {
		f.Answer, f.Err = finding.No, err
		return f
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		f.Err = fmt.Errorf("open netlink socket: %w", err)
		return f
	}
	defer h.Close()
	diffs, err := inspect(h, declaration{sysctls: sysctls, routes: noRoutes})
	switch {
	case err != nil:
		f.Err = err
	case len(diffs) > 0:
		f.Answer, f.Err = finding.No, fmt.Errorf("a new namespace differs from what was declared: %v", diffs)
	default:
		f.Answer, f.Detail = finding.Yes, "only lo, no routes"
	}
	return f
}

func probeIPv6() finding.Feature {
	f := finding.Feature{Name: "ipv6"}
	v6, err := hasIPv6()
	switch {
	case err != nil:
		f.Err = err
	case v6:
		f.Answer, f.Detail = finding.Yes, "::1 works inside, nothing else has IPv6"
	default:
		f.Answer, f.Detail = finding.No, "the kernel has no IPv6: ::1 does not work inside"
		f.Err = errors.New("the kernel has no IPv6")
	}
	return f
}

// probeFilter finds the command, and whether the rules of a redirect take effect in here.
// It leaves them there.
func probeFilter(f family, here *Namespace) []finding.Feature {
	c, err := findCommand(f, backendAny)
	if err != nil {
		return []finding.Feature{{Name: string(f), Answer: finding.No, Err: err}}
	}
	present := finding.Feature{Name: string(f), Answer: finding.Yes, Detail: fmt.Sprintf("%s %s, %s", c.path, c.version, c.backend)}
	rules := finding.Feature{Name: string(f) + " rules", Answer: finding.No}
	rules.Err = c.with(here.Do, func(ipt ruleTables) error {
		want := declaredTables(f)
		found, err := []Difference(nil), program(ipt, want, true)
		for _, t := range want {
			if err == nil {
				found, err = compareChains(ipt, f, t)
			}
			if err == nil && len(found) > 0 {
				err = fmt.Errorf("the rules are others afterwards: %v", found)
			}
		}
		return err
	})
	if rules.Err == nil {
		rules.Answer, rules.Detail = finding.Yes, "rules take effect in a namespace"
	}
	return []finding.Feature{present, rules}
}

// probeDropLog opens the socket that is told of what the rules let go nowhere.
func probeDropLog() finding.Feature {
	f := finding.Feature{Name: "packet log", Answer: finding.No}
	socket, err := OpenDropLog()
	if err != nil {
		f.Err = sbxerr.WithRemedy(sbxerr.NetRule, "netns.probe", err, "load the kernel module nfnetlink_log")
		return f
	}
	_ = socket.Close() // nothing was written
	f.Answer, f.Detail = finding.Yes, "attempts that the rules refuse are recorded"
	return f
}
