package oci

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	idLen         = 26
	maxID         = 65534       // 65535 is "no id" where ids are 16 bits wide
	maxHostID     = 1<<31 - 1   // past it, runtimes have parsed ids as negative (CVE-2024-40635)
	minHostBase   = IDBlockSize // below are the host's own users
	maxGroups     = 64
	maxArgBytes   = 128 << 10 // MAX_ARG_STRLEN of execve(2)
	maxAnnotation = 256
	minTmpfsBytes = 64 << 10
	minTmpfsNodes = 64
)

// AnnotationKeys are the only annotations that are allowed. Runtimes act on keys of their
// own (org.systemd.property.*, run.oci.*, dev.gvisor.*, cdi.k8s.io/*), so every other key
// is refused.
var AnnotationKeys = []string{"caisson.managed", "caisson.profile", "caisson.session", "caisson.task"}

func checkID(c Config) error {
	var errs []error
	if !validID(c.ID) {
		errs = append(errs, fmt.Errorf("id %q is not %d characters of a-z and 2-7", c.ID, idLen))
	}
	if c.Hostname != "" && !hostForm.MatchString(c.Hostname) {
		errs = append(errs, fmt.Errorf("host name %q is not a label of RFC 1123", c.Hostname))
	}
	return errors.Join(errs...)
}

// hostForm is the form of a label in RFC 1123.
var hostForm = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)

func validID(id string) bool {
	notInAlphabet := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') }
	return len(id) == idLen && !strings.ContainsFunc(id, notInAlphabet)
}

func checkProcess(c Config) error {
	var errs []error
	p := c.Process
	if len(p.Args) == 0 {
		errs = append(errs, errors.New("process has no arguments"))
	} else if !cleanPath(p.Args[0]) || !below(p.Args[0], InitMount) {
		errs = append(errs, fmt.Errorf("program of pid 1 %q is not a clean path below %s", p.Args[0], InitMount))
	}
	for _, arg := range p.Args {
		if len(arg) >= maxArgBytes || strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("argument %.64q is too long or holds a nul byte", arg))
		}
	}
	// A working directory below /proc can be a leaked descriptor of the
	// runtime (CVE-2024-21626).
	if !cleanPath(p.Cwd) || reserved(p.Cwd) {
		errs = append(errs, fmt.Errorf("working directory %q is not a clean absolute path outside /proc, /sys and /dev", p.Cwd))
	}
	return errors.Join(errs...)
}

// checkEnv leaves the runtime nothing to add or drop: runc removes duplicates,
// and reads HOME from the image's /etc/passwd when it is absent.
func checkEnv(c Config) error {
	var errs []error
	seen := map[string]bool{}
	for _, kv := range c.Process.Env {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "" || len(kv) >= maxArgBytes || strings.ContainsRune(kv, 0):
			errs = append(errs, fmt.Errorf("environment entry %.64q is not NAME=VALUE", name))
		case seen[name]:
			errs = append(errs, fmt.Errorf("environment names %.64q twice", name))
		case value == "" && (name == "HOME" || name == "PATH"):
			errs = append(errs, fmt.Errorf("environment has an empty %s", name))
		}
		seen[name] = true
	}
	for _, name := range []string{"HOME", "PATH"} {
		if !seen[name] {
			errs = append(errs, fmt.Errorf("environment lacks %s", name))
		}
	}
	return errors.Join(errs...)
}

func checkIDs(c Config) error {
	var errs []error
	p, m := c.Process, c.IDMap
	if m.Size != IDBlockSize {
		errs = append(errs, fmt.Errorf("id block has %d ids, want %d", m.Size, IDBlockSize))
	}
	if m.HostBase < minHostBase || m.HostBase > maxHostID-IDBlockSize+1 {
		errs = append(errs, fmt.Errorf("id block begins at host id %d, outside %d to %d", m.HostBase, minHostBase, maxHostID-IDBlockSize+1))
	}
	for name, id := range map[string]uint32{"uid": p.UID, "gid": p.GID} {
		if !validUser(id) && (id != 0 || !c.Allowed.RootUser) {
			errs = append(errs, fmt.Errorf("%s %d is outside 1 to %d", name, id, maxID))
		}
	}
	if len(p.AdditionalGIDs) > maxGroups {
		errs = append(errs, fmt.Errorf("%d additional groups, at most %d are possible", len(p.AdditionalGIDs), maxGroups))
	}
	for i, gid := range p.AdditionalGIDs {
		if !validUser(gid) || slices.Contains(p.AdditionalGIDs[:i], gid) {
			errs = append(errs, fmt.Errorf("additional gid %d is outside 1 to %d or named twice", gid, maxID))
		}
	}
	return errors.Join(errs...)
}

func validUser(id uint32) bool { return id > 0 && id <= maxID }

// checkPaths confines all host paths of a specification to one directory.
func checkPaths(c Config) error {
	if !cleanPath(c.StateDir) || filepath.Base(c.StateDir) != c.ID {
		return fmt.Errorf("state directory %q is not a clean absolute path that ends with the id", c.StateDir)
	}
	paths := []struct{ name, path string }{
		{"root", c.RootPath}, {"init directory", c.InitDir}, {"device directory", c.DevDir}, {"network namespace", c.NetNSPath}, {"user namespace", c.UserNSPath},
	}
	if c.HomeDir != "" {
		paths = append(paths, struct{ name, path string }{"home directory", c.HomeDir})
	}
	var errs []error
	for _, p := range paths {
		if !cleanPath(p.path) || !below(p.path, c.StateDir) {
			errs = append(errs, fmt.Errorf("%s %q is not a clean path below the state directory", p.name, p.path))
		}
	}
	for i, p := range paths {
		if slices.ContainsFunc(paths[i+1:], func(other struct{ name, path string }) bool { return overlap(p.path, other.path) }) {
			errs = append(errs, errors.New("root, init, device and home directory and namespaces contain one another"))
			break
		}
	}
	return errors.Join(errs...)
}

func checkCgroupsPath(c Config) error {
	p := c.CgroupsPath
	parent, base := filepath.Split(p)
	// A colon would make it a systemd triple to the runtime.
	if !cleanPath(p) || strings.Contains(p, ":") || base != c.ID || strings.Trim(parent, "/") == "" {
		return fmt.Errorf("cgroup path %q is not a clean absolute path that ends with a parent and the id", p)
	}
	return nil
}

func checkSeccomp(c Config) error {
	s := c.Seccomp
	if s == nil {
		return errors.New("seccomp filter is missing")
	}
	var errs []error
	if s.DefaultAction != specs.ActErrno {
		errs = append(errs, fmt.Errorf("seccomp default action %q is not %q", s.DefaultAction, specs.ActErrno))
	}
	if len(s.Architectures) != 1 {
		errs = append(errs, fmt.Errorf("seccomp filter names %d architectures, want the native one only", len(s.Architectures)))
	}
	if s.ListenerPath != "" || s.ListenerMetadata != "" {
		errs = append(errs, errors.New("seccomp filter has a listener"))
	}
	if slices.Contains(s.Flags, specs.LinuxSeccompFlagSpecAllow) {
		errs = append(errs, errors.New("seccomp filter opts out of the speculative store bypass mitigation"))
	}
	for _, rule := range s.Syscalls {
		switch rule.Action {
		case specs.ActAllow, specs.ActErrno, specs.ActKill, specs.ActKillProcess, specs.ActKillThread:
		default:
			errs = append(errs, fmt.Errorf("seccomp action %q of %q is not possible", rule.Action, rule.Names))
		}
	}
	return errors.Join(errs...)
}

// checkResources asks only that every bound is there: how large it is, the
// caller decides.
func checkResources(c Config) error {
	r := c.Resources
	if r == nil {
		return errors.New("resources are missing")
	}
	var errs []error
	if r.Memory == nil || !positive(r.Memory.Limit) {
		errs = append(errs, errors.New("memory limit is missing or not positive"))
	}
	if r.Pids == nil || !positive(r.Pids.Limit) {
		errs = append(errs, errors.New("process limit is missing or not positive"))
	}
	if r.CPU == nil || !positive(r.CPU.Quota) || !positive(r.CPU.Period) {
		errs = append(errs, errors.New("cpu quota or period is missing or not positive"))
	}
	if len(r.Devices) == 0 || !deniesAll(r.Devices[0]) {
		errs = append(errs, errors.New("device rules do not begin with denying all"))
	}
	return errors.Join(errs...)
}

func deniesAll(d specs.LinuxDeviceCgroup) bool {
	anyType := d.Type == "" || d.Type == "a"
	return !d.Allow && anyType && d.Major == nil && d.Minor == nil && d.Access == "rwm"
}

func positive[N int64 | uint64](n *N) bool { return n != nil && *n > 0 }

func checkRlimits(c Config) error {
	var errs []error
	seen := map[string]bool{}
	for _, l := range c.Rlimits {
		i := slices.IndexFunc(rlimitRules, func(r rlimitRule) bool { return r.name == l.Type })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("rlimit %q is not one of the sandbox's", l.Type))
		case seen[l.Type]:
			errs = append(errs, fmt.Errorf("rlimit %s is given twice", l.Type))
		case l.Soft > l.Hard || l.Hard == unlimited:
			errs = append(errs, fmt.Errorf("rlimit %s of %d:%d is unlimited or has its soft limit above the hard one", l.Type, l.Soft, l.Hard))
		case rlimitRules[i].from == fixed && l.Hard > rlimitRules[i].hard:
			errs = append(errs, fmt.Errorf("rlimit %s of %d is above its fixed %d", l.Type, l.Hard, rlimitRules[i].hard))
		}
		seen[l.Type] = true
	}
	for _, r := range rlimitRules {
		if !seen[r.name] {
			errs = append(errs, fmt.Errorf("rlimit %s is missing", r.name))
		}
	}
	return errors.Join(errs...)
}

func checkBounds(c Config) error {
	var errs []error
	if c.OOMScoreAdj < 1 || c.OOMScoreAdj > 1000 {
		errs = append(errs, fmt.Errorf("oom score adjustment %d is outside 1 to 1000", c.OOMScoreAdj))
	}
	for _, size := range []int64{c.TmpfsBytes, cmp.Or(c.ShmBytes, c.TmpfsBytes)} {
		if size < minTmpfsBytes {
			errs = append(errs, fmt.Errorf("tmpfs size %d is below %d bytes", size, minTmpfsBytes))
		}
	}
	if c.TmpfsInodes < minTmpfsNodes {
		errs = append(errs, fmt.Errorf("tmpfs has %d inodes, fewer than %d", c.TmpfsInodes, minTmpfsNodes))
	}
	return errors.Join(errs...)
}

func checkAnnotations(c Config) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		value := c.Annotations[key]
		if !slices.Contains(AnnotationKeys, key) {
			errs = append(errs, fmt.Errorf("annotation %.64q is not one of ours", key))
		}
		if len(value) > maxAnnotation || !printable(value) {
			errs = append(errs, fmt.Errorf("annotation %.64q is longer than %d bytes or not printable", key, maxAnnotation))
		}
	}
	return errors.Join(errs...)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// cleanPath reports whether p is absolute, in its shortest form and printable;
// a path that is not could mean one thing here and another to the runtime.
func cleanPath(p string) bool {
	return filepath.IsAbs(p) && filepath.Clean(p) == p && printable(p)
}

// below reports whether the clean path p is strictly inside the clean path dir.
func below(p, dir string) bool {
	if dir == "/" {
		return p != "/"
	}
	return strings.HasPrefix(p, dir+"/")
}

func overlap(a, b string) bool { return a == b || below(a, b) || below(b, a) }

// reserved reports whether p is, or is inside, a directory that belongs to the
// kernel or to us.
func reserved(p string) bool {
	return slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(dir string) bool { return p == dir || below(p, dir) })
}
