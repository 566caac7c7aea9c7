package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"
)

// Answer is the result of a probe.
type Answer uint8

// The answers. The zero Answer is the one that refuses.
const (
	Unknown Answer = iota // the probe itself did not work
	No
	Yes
)

// String returns "yes", "no" or "could not tell".
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	default:
		return "could not tell"
	}
}

// MarshalText makes an Answer readable in JSON.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Feature is one finding about the host.
type Feature struct {
	Name   string
	Answer Answer
	Detail string
	Err    error // what stands behind No and Unknown; nil for Yes
	// Needed is set for what mode none cannot do without. The rest is needed
	// by modes that are not offered yet and is only worth knowing.
	Needed bool
}

// tables is the part of *iptables.IPTables that a probe uses.
type tables interface {
	ChangePolicy(table, chain, target string) error
	Append(table, chain string, args ...string) error
	Exists(table, chain string, args ...string) (bool, error)
}

// binary is one iptables command and what it turned out to be.
type binary struct {
	name  string
	proto iptables.Protocol
}

var binaries = []binary{{"iptables", iptables.ProtocolIPv4}, {"ip6tables", iptables.ProtocolIPv6}}

// binaryDirs is where the commands are looked for: not along PATH, which
// belongs to whoever started the daemon.
var binaryDirs = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"}

// lockWait is how many seconds iptables may wait for another one's lock.
const lockWait = 5

// probeRules are of the kinds that the other modes will need.
var probeRules = []struct {
	table, chain string
	args         []string
	v4only       bool
}{
	{"filter", "OUTPUT", []string{"-o", "lo", "-j", "ACCEPT"}, false},
	{"nat", "OUTPUT", []string{"-p", "tcp", "-d", "198.18.0.0/15", "-j", "REDIRECT", "--to-ports", "1"}, true},
}

// Probe finds out what this host can do. All it makes is a namespace without
// a name that is gone when it returns.
func Probe() []Feature {
	var found []Feature
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		found = append(found, probeNamespace(), probeIPv6())
		for _, b := range binaries {
			found = append(found, b.probe()...)
		}
		return nil
	})
	if err != nil {
		f := Feature{Name: "network namespace", Needed: true, Answer: No, Err: fmt.Errorf("unshare network namespace: %w", err)}
		if errors.Is(err, unix.EPERM) {
			f.Answer = Unknown // a right is missing, not the feature
		}
		return []Feature{f}
	}
	return found
}

// probeNamespace makes the calling thread's new namespace what Create would
// make of it, and looks whether it is that.
func probeNamespace() Feature {
	f := Feature{Name: "network namespace", Needed: true}
	if err := configure(); err != nil {
		f.Answer, f.Err = No, err
		return f
	}
	diffs, err := inspect()
	switch {
	case err != nil:
		f.Err = err
	case len(diffs) > 0:
		f.Answer, f.Err = No, fmt.Errorf("a new namespace differs from what was declared: %v", diffs)
	default:
		f.Answer, f.Detail = Yes, "only lo, no routes"
	}
	return f
}

func probeIPv6() Feature {
	f := Feature{Name: "ipv6"}
	v6, err := hasIPv6()
	switch {
	case err != nil:
		f.Err = err
	case v6:
		f.Answer, f.Detail = Yes, "::1 works inside, nothing else has IPv6"
	default:
		f.Answer, f.Detail = No, "the kernel has no IPv6: ::1 does not work inside"
		f.Err = errors.New("the kernel has no IPv6")
	}
	return f
}

// probe finds the command, its flavour, and whether its rules take effect in
// the calling thread's namespace.
func (b binary) probe() []Feature {
	path, err := b.find()
	if err != nil {
		return []Feature{{Name: b.name, Answer: No, Err: err}}
	}
	ipt, err := iptables.New(iptables.IPFamily(b.proto), iptables.Path(path), iptables.Timeout(lockWait))
	if err != nil {
		return []Feature{{Name: b.name, Err: fmt.Errorf("run %q: %w", path, err)}}
	}
	major, minor, patch := ipt.GetIptablesVersion()
	present := Feature{Name: b.name, Answer: Yes, Detail: fmt.Sprintf("%s %d.%d.%d, %s", path, major, minor, patch, flavour(path, major, minor))}
	return []Feature{present, probeTables(b.name+" rules", b.proto == iptables.ProtocolIPv4, ipt)}
}

// find returns the first place where the command is.
func (b binary) find() (string, error) {
	for _, dir := range binaryDirs {
		path := filepath.Join(dir, b.name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %q in %s: it is not there", b.name, strings.Join(binaryDirs, ", "))
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

// probeTables programs rules and reads them back.
func probeTables(name string, v4 bool, t tables) Feature {
	f := Feature{Name: name, Answer: No}
	if f.Err = t.ChangePolicy("filter", "OUTPUT", "DROP"); f.Err != nil {
		return f
	}
	for _, r := range probeRules {
		if r.v4only && !v4 {
			continue
		}
		if f.Err = t.Append(r.table, r.chain, r.args...); f.Err != nil {
			return f
		}
		there, err := t.Exists(r.table, r.chain, r.args...)
		if err != nil {
			f.Answer, f.Err = Unknown, err
			return f
		}
		if !there {
			f.Err = fmt.Errorf("append %q to %s of %s: it is not there afterwards", r.args, r.chain, r.table)
			return f
		}
	}
	f.Answer, f.Detail = Yes, "rules take effect in a namespace"
	return f
}
