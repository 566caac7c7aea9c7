package oci

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// baseMount is one mount that every sandbox has, with the reason for it.
type baseMount struct {
	destination, fstype string
	options             []string
	sized               bool // size and inodes of the Config
	owned               bool // belongs to the process's user
	why                 string
}

// HomeMount holds the home directories of users.
const HomeMount = "/home"

const shmMount = "/dev/shm"

// baseMounts in the order in which they are made. There is no /sys and no
// cgroup mount. /proc has neither subset=pid, which would hide meminfo and
// cpuinfo from every language runtime, nor hidepid, which would hide only
// PID 1: all processes of a sandbox have one user.
var baseMounts = []baseMount{
	{destination: "/proc", fstype: "proc", options: []string{"nosuid", "noexec", "nodev"},
		why: "processes of the sandbox only; the rest is masked"},
	// A runtime in a user namespace would bind the host's own nodes. Their inodes
	// carry locks and watches from one sandbox to another and to the host.
	{destination: "/dev", fstype: "bind", options: []string{"bind", "nosuid", "noexec", "rprivate", "ro"},
		why: "null, zero, full, random, urandom, tty of the sandbox's own and links; nothing can be added"},
	{destination: "/dev/pts", fstype: "devpts", options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=64"},
		why: "terminals of the sandbox's own; max keeps them from using up the host's"},
	{destination: shmMount, fstype: "tmpfs", options: []string{"nosuid", "noexec", "nodev", "mode=1777"}, sized: true,
		why: "POSIX shared memory"},
	{destination: "/dev/mqueue", fstype: "mqueue", options: []string{"nosuid", "noexec", "nodev"},
		why: "the ipc namespace's own queues; the rlimit allows none"},
	{destination: "/tmp", fstype: "tmpfs", options: []string{"nosuid", "nodev", "mode=1777"}, sized: true,
		why: "scratch; executable, since builds and tests run what they make here"},
	{destination: "/var/tmp", fstype: "tmpfs", options: []string{"nosuid", "nodev", "mode=1777"}, sized: true,
		why: "scratch; executable, as /tmp"},
	{destination: "/run", fstype: "tmpfs", options: []string{"nosuid", "noexec", "nodev", "mode=0755"}, sized: true,
		why: "holds the directory of pid 1"},
	{destination: HomeMount, fstype: "tmpfs", options: []string{"nosuid", "nodev", "mode=0755"}, sized: true, owned: true,
		why: "home of the user; executable, since tools install themselves here; a bind is the image's own, what is written stays in memory"},
}

// bindOptions are the options of every bind, whatever the caller asks for.
var bindOptions = []string{"bind", "nosuid", "nodev", "rprivate"}

// callerTmpfs are the options of a tmpfs of the caller, beside its size: those of /tmp.
var callerTmpfs = []string{"nosuid", "nodev", "mode=1777"}

// callerOptions are the options that a caller's mount may name.
var callerOptions = append([]string{"ro", "rro", "rw", "exec", "noexec"}, bindOptions...)

func mounts(c Config) []specs.Mount {
	var out []specs.Mount
	for _, b := range baseMounts {
		switch {
		case b.destination != HomeMount:
			out = append(out, b.mount(c))
		case c.Allowed.WritableRoot: // it is part of the root
		case c.HomeDir != "":
			out = append(out, specs.Mount{Destination: HomeMount, Type: "bind", Source: c.HomeDir, Options: callerBind([]string{"rw", "exec"})})
		default:
			out = append(out, b.mount(c))
		}
	}
	// Executable: pid 1 is in it.
	out = append(out, specs.Mount{Destination: InitMount, Type: "bind", Source: c.InitDir, Options: append(slices.Clone(bindOptions), "ro")})
	for _, m := range c.Mounts {
		if m.Type == "tmpfs" {
			out = append(out, baseMount{destination: m.Destination, fstype: "tmpfs", options: append(slices.Clone(callerTmpfs), m.Options...)}.mount(c))
			continue
		}
		out = append(out, specs.Mount{Destination: m.Destination, Type: "bind", Source: m.Source, Options: callerBind(m.Options)})
	}
	return out
}

// RuntimeMounts are the mounts of spec without those that lie in a bind of the caller. The
// OCI runtime would resolve such a target through files that the sandbox, or somebody
// else, can change meanwhile (CVE-2021-30465): it never gets them.
func RuntimeMounts(spec *specs.Spec) (out []specs.Mount) {
	for i, m := range spec.Mounts {
		if !slices.ContainsFunc(spec.Mounts[:i], func(b specs.Mount) bool { return callers(b) && below(m.Destination, b.Destination) }) {
			out = append(out, m)
		}
	}
	return out
}

// callers reports whether m is a bind that a caller asked for.
func callers(m specs.Mount) bool {
	return m.Type == "bind" && m.Destination != "/dev" && m.Destination != InitMount
}

func (b baseMount) mount(c Config) specs.Mount {
	options := slices.Clone(b.options)
	if b.sized {
		size := c.TmpfsBytes
		if b.destination == shmMount {
			size = cmp.Or(c.ShmBytes, size)
		}
		options = append(options, "size="+strconv.FormatInt(size, 10))
	}
	if b.fstype == "tmpfs" {
		options = append(options, "nr_inodes="+strconv.FormatInt(c.TmpfsInodes, 10))
	}
	if b.owned {
		options = append(options, fmt.Sprintf("uid=%d", c.Process.UID), fmt.Sprintf("gid=%d", c.Process.GID))
	}
	source := b.fstype
	if b.fstype == "bind" {
		source = c.DevDir
	}
	return specs.Mount{Destination: b.destination, Type: b.fstype, Source: source, Options: options}
}

// CallerBind is the mount of a directory that a caller may write to, unless it is read-only.
func CallerBind(target, source string, readOnly bool) specs.Mount {
	mode := "rw"
	if readOnly {
		mode = "ro"
	}
	return specs.Mount{Destination: target, Type: "bind", Source: source, Options: callerBind([]string{mode, "exec"})}
}

// callerBind starts with the strictest options and adds those that the caller asked for.
// "exec" is not passed on: a mount that is noexec on the host stays noexec.
func callerBind(asked []string) []string {
	options := slices.Clone(bindOptions)
	switch {
	case slices.Contains(asked, "rro"):
		options = append(options, "rro")
	case slices.Contains(asked, "rw") && !slices.Contains(asked, "ro"):
		options = append(options, "rw")
	default:
		options = append(options, "ro")
	}
	if !slices.Contains(asked, "exec") || slices.Contains(asked, "noexec") {
		options = append(options, "noexec")
	}
	return options
}

func checkMounts(c Config) error {
	var errs []error
	for i, m := range c.Mounts {
		if err := errors.Join(checkSource(c, m), checkDestination(m.Destination, c.Mounts[:i]), checkOptions(m)); err != nil {
			errs = append(errs, fmt.Errorf("mount %q on %q: %w", m.Source, m.Destination, err))
		}
	}
	return errors.Join(errs...)
}

func checkSource(c Config, m specs.Mount) error {
	if m.Type == "tmpfs" {
		if m.Source != "tmpfs" {
			return errors.New("the source of a tmpfs is not tmpfs")
		}
		return nil
	}
	if !cleanPath(m.Source) || !below(m.Source, c.StateDir) {
		return errors.New("source is not a clean path below the state directory")
	}
	if overlap(m.Source, c.RootPath) || overlap(m.Source, c.InitDir) || overlap(m.Source, c.DevDir) || overlap(m.Source, c.NetNSPath) || overlap(m.Source, c.UserNSPath) {
		return errors.New("source is the root, the init or the device directory, or a namespace")
	}
	return nil
}

// checkDestination also refuses a mount that hides another one. One may lie in an earlier
// bind of the caller: see RuntimeMounts.
func checkDestination(dest string, before []specs.Mount) error {
	if !cleanPath(dest) || dest == "/" || reserved(dest) || overlap(dest, InitMount) {
		return errors.New("destination is not a clean path outside /proc, /sys, /dev and " + InitMount)
	}
	for _, b := range baseMounts {
		if overlap(dest, b.destination) && !inScratch(dest, b) {
			return fmt.Errorf("destination overlaps the sandbox's own %s", b.destination)
		}
	}
	for _, m := range before {
		if overlap(dest, m.Destination) && !(m.Type != "tmpfs" && below(dest, m.Destination)) {
			return fmt.Errorf("destination overlaps that of another mount, %q", m.Destination)
		}
	}
	return nil
}

// inScratch reports whether dest is inside an empty tmpfs, where nobody can
// have put anything before the runtime makes the mount point.
func inScratch(dest string, b baseMount) bool { return b.sized && below(dest, b.destination) }

func checkOptions(m specs.Mount) error {
	var errs []error
	if m.Type == "tmpfs" {
		size, found := strings.CutPrefix(strings.Join(m.Options, ","), "size=")
		if n, err := strconv.ParseUint(size, 10, 63); !found || err != nil || n == 0 {
			return errors.New("a tmpfs has a size in bytes, and no other option")
		}
		return nil
	}
	if m.Type != "" && m.Type != "bind" {
		errs = append(errs, fmt.Errorf("type %q is not bind", m.Type))
	}
	if len(m.UIDMappings)+len(m.GIDMappings) > 0 {
		errs = append(errs, errors.New("id mappings are made by the daemon, not by the runtime"))
	}
	for _, o := range m.Options {
		if !slices.Contains(callerOptions, o) {
			errs = append(errs, fmt.Errorf("option %q is not possible", o))
		}
	}
	return errors.Join(errs...)
}
