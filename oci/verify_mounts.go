package oci

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// loosening are mount options that undo a protection or that make the runtime
// read or write files of the host.
var loosening = strings.Fields("suid dev rsuid rdev rexec rrw shared rshared slave rslave unbindable runbindable rbind remount tmpcopyup idmap ridmap mand")

// mountRule is the rule for mounts of one type.
type mountRule struct {
	where []string // the only destinations; nil: see the rule of binds; of a tmpfs, those of every sandbox
	needs string   // options that must be there
	sets  string   // options that must be there with a value other than 0
}

var mountRules = map[string]mountRule{
	"proc":   {where: []string{"/proc"}, needs: "nosuid nodev noexec"},
	"tmpfs":  {where: strings.Fields("/dev/shm /tmp /var/tmp /run /home"), needs: "nosuid nodev", sets: "size nr_inodes mode"},
	"devpts": {where: []string{"/dev/pts"}, needs: "nosuid noexec newinstance", sets: "max"},
	"mqueue": {where: []string{"/dev/mqueue"}, needs: "nosuid nodev noexec"},
	"bind":   {needs: "bind nosuid nodev rprivate"},
}

// devRule is for the only mount on which device nodes work.
var devRule = mountRule{needs: "bind nosuid noexec rprivate ro"}

// alsoNoexec are the tmpfs mounts that must be noexec. Builds execute their results in
// the other ones.
var alsoNoexec = strings.Fields("/dev/shm /run")

func ruleMounts(s *specs.Spec) error {
	var errs []error
	var seen []string
	for i, m := range s.Mounts {
		if err := errors.Join(ruleMount(s, m), ruleOrder(m, s.Mounts[:i])); err != nil {
			errs = append(errs, fmt.Errorf("mount on %q: %w", m.Destination, err))
		}
		seen = append(seen, m.Destination)
	}
	for _, dest := range strings.Fields("/proc /dev /dev/pts /dev/shm /dev/mqueue /tmp /var/tmp /run /run/caisson") {
		if !slices.Contains(seen, dest) {
			errs = append(errs, fmt.Errorf("nothing is mounted on %s", dest))
		}
	}
	return errors.Join(errs...)
}

func ruleHome(s *specs.Spec) error {
	if !slices.ContainsFunc(s.Mounts, onHome) {
		return errors.New("nothing is mounted on /home")
	}
	return nil
}

func ruleNoHome(s *specs.Spec) error {
	if slices.ContainsFunc(s.Mounts, onHome) {
		return errors.New("a mount on /home hides that of the image")
	}
	return nil
}

func onHome(m specs.Mount) bool { return m.Destination == "/home" }

func ruleMount(s *specs.Spec, m specs.Mount) error {
	rule, ok := mountRules[m.Type]
	if m.Destination == "/dev" {
		rule, ok = devRule, m.Type == "bind"
	}
	if !ok {
		return fmt.Errorf("type %q", m.Type)
	}
	var errs []error
	if path.Clean(m.Destination) != m.Destination || !path.IsAbs(m.Destination) || m.Destination == "/" {
		errs = append(errs, errors.New("destination is not clean and absolute"))
	}
	if rule.where == nil {
		errs = append(errs, ruleBind(s, m))
	} else if !slices.Contains(rule.where, m.Destination) && !asked(m) || m.Source != m.Type {
		errs = append(errs, fmt.Errorf("a %s of %q has no place there", m.Type, m.Source))
	}
	if len(m.UIDMappings)+len(m.GIDMappings) > 0 {
		errs = append(errs, errors.New("it maps ids"))
	}
	errs = append(errs, ruleOptions(rule, m))
	return errors.Join(errs...)
}

// notAsked are the directories in which a request can mount nothing, and notHidden those that no
// mount of a request covers.
var (
	notAsked  = strings.Fields("/bin /boot /dev /lib /lib32 /lib64 /libx32 /proc /sbin /sys /run/caisson")
	notHidden = strings.Fields("/etc /home /run /usr /var")
)

// asked reports whether m is a tmpfs that a request may have.
func asked(m specs.Mount) bool {
	return m.Type == "tmpfs" && !slices.Contains(notHidden, m.Destination) &&
		!slices.ContainsFunc(notAsked, func(dir string) bool { return strings.HasPrefix(m.Destination+"/", dir+"/") })
}

func ruleOptions(rule mountRule, m specs.Mount) error {
	var errs []error
	needs := strings.Fields(rule.needs)
	if slices.Contains(alsoNoexec, m.Destination) {
		needs = append(needs, "noexec")
	}
	for _, o := range needs {
		if !slices.Contains(m.Options, o) {
			errs = append(errs, fmt.Errorf("it lacks %s", o))
		}
	}
	for _, key := range strings.Fields(rule.sets) {
		if !setsOption(m.Options, key) {
			errs = append(errs, fmt.Errorf("it does not set %s", key))
		}
	}
	for _, o := range m.Options {
		if slices.Contains(loosening, o) || o == "exec" && slices.Contains(needs, "noexec") {
			errs = append(errs, fmt.Errorf("it has option %s", o))
		}
	}
	return errors.Join(errs...)
}

// setsOption reports whether key is given once, as a number above zero; "64k"
// is one to a tmpfs.
func setsOption(options []string, key string) bool {
	found := 0
	for _, o := range options {
		value, ok := strings.CutPrefix(o, key+"=")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(value, "k"), 10, 63)
		if err != nil || n == 0 {
			return false
		}
		found++
	}
	return found == 1
}

func ruleBind(s *specs.Spec, m specs.Mount) error {
	var errs []error
	if !owns(s, m.Source) || m.Source == s.Root.Path || strings.HasPrefix(m.Source, s.Root.Path+"/") {
		errs = append(errs, fmt.Errorf("source %q is not the sandbox's own", m.Source))
	}
	if (m.Destination == "/dev") != (m.Source == sandboxDir(s)+"/own/dev") {
		errs = append(errs, errors.New("the directory of devices is for /dev, and nothing else is"))
	}
	if onHome(m) && !strings.HasPrefix(m.Source, sandboxDir(s)+"/homes/") {
		errs = append(errs, errors.New("the home directories are not those that the daemon made"))
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if m.Destination != "/dev" && strings.HasPrefix(m.Destination+"/", dir+"/") {
			errs = append(errs, fmt.Errorf("it covers %s", dir))
		}
	}
	readonly := slices.Contains(m.Options, "ro") || slices.Contains(m.Options, "rro")
	if writable := slices.Contains(m.Options, "rw"); readonly == writable {
		errs = append(errs, errors.New("it is not clearly read-only or writable"))
	}
	if m.Destination == "/run/caisson" && !readonly {
		errs = append(errs, errors.New("pid 1 could be replaced"))
	}
	return errors.Join(errs...)
}

// ruleOrder: a mount hides nothing that was mounted before it. Nothing lies in the
// directory of PID 1. A mount in a bind of a request is not for the runtime.
func ruleOrder(m specs.Mount, before []specs.Mount) error {
	for _, b := range before {
		if b.Destination == m.Destination || strings.HasPrefix(b.Destination, m.Destination+"/") {
			return fmt.Errorf("it hides the mount on %s", b.Destination)
		}
		if b.Destination == "/run/caisson" && strings.HasPrefix(m.Destination, b.Destination+"/") {
			return fmt.Errorf("it lies inside %s", b.Destination)
		}
	}
	return nil
}
