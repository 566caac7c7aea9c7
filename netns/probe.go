package netns

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// tables is the part of *iptables.IPTables that a probe uses.
type tables interface {
	ChangePolicy(table, chain, target string) error
	Append(table, chain string, args ...string) error
	Exists(table, chain string, args ...string) (bool, error)
}

// binary is one iptables command.
type binary struct {
	family family
	proto  iptables.Protocol
}

var binaries = []binary{{familyV4, iptables.ProtocolIPv4}, {familyV6, iptables.ProtocolIPv6}}

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
	return probeInside(finding.Feature{Name: "iptables"}, func() (found []finding.Feature) {
		for _, b := range binaries {
			found = append(found, b.probe()...)
		}
		return append(found, probeStrays())
	})
}

// Filters is why no namespace can have a gate on this host, with code sbxerr.NetRule: it has
// no commands that program rules. It runs nothing; whether they work, ProbeFilters finds out.
func Filters() error {
	families, err := families()
	if err != nil {
		return sbxerr.Wrap(sbxerr.Network, "netns.filters", err)
	}
	var errs []error
	for _, f := range families {
		_, err := lookForRestorer(f, backendAny)
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
	diffs, err := inspect(h, nil)
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

// probe finds the command, its flavour, and whether its rules take effect in
// the calling thread's namespace: one by one, and all at once as Lead programs
// them.
func (b binary) probe() []finding.Feature {
	name := string(b.family)
	path, err := findBinary(name)
	if err != nil {
		return []finding.Feature{{Name: name, Answer: finding.No, Err: sbxerr.WithRemedy(sbxerr.NetRule, "netns.probe", err, remedyMissing)}}
	}
	if _, err := (command{path, name}).run("", "--version"); err != nil { // go-iptables waits without a bound
		return []finding.Feature{{Name: name, Answer: finding.No, Err: err}}
	}
	ipt, err := iptables.New(iptables.IPFamily(b.proto), iptables.Path(path), iptables.Timeout(lockWait))
	if err != nil {
		return []finding.Feature{{Name: name, Err: fmt.Errorf("run %q: %w", path, err)}}
	}
	major, minor, patch := ipt.GetIptablesVersion()
	present := finding.Feature{Name: name, Answer: finding.Yes, Detail: fmt.Sprintf("%s %d.%d.%d, %s", path, major, minor, patch, flavour(path, major, minor))}
	want := declaredTables(b.family)
	return []finding.Feature{present, probeTables(name+" rules", want, ipt), probeRestore(b.family, want)}
}

// probeRestore programs all rules at once and reads them back.
func probeRestore(f family, want []table) finding.Feature {
	feature := finding.Feature{Name: string(f) + "-restore", Answer: finding.No}
	r, err := findRestorer(f, backendAny)
	if err == nil {
		err = r.Restore(want)
	}
	if err != nil {
		feature.Err = err
		return feature
	}
	live, err := r.Save()
	if err != nil {
		feature.Answer, feature.Err = finding.Unknown, err
		return feature
	}
	if diffs := compareTables(f, want, live); len(diffs) > 0 {
		feature.Err = sbxerr.New(sbxerr.NetRule, "netns.probe", "program the rules: they are others afterwards: %v", diffs)
		return feature
	}
	feature.Answer, feature.Detail = finding.Yes, fmt.Sprintf("%s, %s: the rules of a gate take effect at once", r.restore.path, r.backend)
	return feature
}

// probeStrays opens the socket that is told of what the rules let go nowhere.
func probeStrays() finding.Feature {
	f := finding.Feature{Name: "packet log", Answer: finding.No}
	socket, err := OpenStrays()
	if err != nil {
		f.Err = sbxerr.WithRemedy(sbxerr.NetRule, "netns.probe", err, "load the kernel module nfnetlink_log")
		return f
	}
	_ = socket.Close() // nothing was written
	f.Answer, f.Detail = finding.Yes, "attempts that the rules refuse are recorded"
	return f
}

// flavour tells which kernel interface the command at path programs. Both
// flavours are one program of many names, so what its links lead to tells;
// before 1.8 there was only one.
func flavour(path string, major, minor int) string {
	if major < 1 || major == 1 && minor < 8 {
		return "legacy"
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "flavour unknown"
	}
	switch base := filepath.Base(target); {
	case strings.Contains(base, "nft"):
		return "nft"
	case strings.Contains(base, "legacy"):
		return "legacy"
	default:
		return "flavour unknown"
	}
}

// probeTables programs the rules of want one by one, and looks for each.
func probeTables(name string, want []table, t tables) finding.Feature {
	f := finding.Feature{Name: name, Answer: finding.No}
	for _, w := range want {
		for _, c := range w.chains {
			if f.Answer, f.Err = probeChain(w.name, c, t); f.Err != nil {
				return f
			}
		}
	}
	f.Answer, f.Detail = finding.Yes, "rules take effect in a namespace"
	return f
}

func probeChain(table string, c chain, t tables) (finding.Answer, error) {
	if err := t.ChangePolicy(table, c.name, c.policy); err != nil {
		return finding.No, err
	}
	for _, r := range c.rules {
		args := strings.Fields(r.spec)
		if err := t.Append(table, c.name, args...); err != nil {
			return finding.No, err
		}
		there, err := t.Exists(table, c.name, args...)
		if err != nil {
			return finding.Unknown, err
		}
		if !there {
			return finding.No, fmt.Errorf("append %q to %s of %s: it is not there afterwards", args, c.name, table)
		}
	}
	return finding.Yes, nil
}
