package oci

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Unisolated is the Config of a sandbox whose root file system is the host's own. Its
// commands run as a user of the host, in the host's user, network and UTS namespace. All
// else confines them as it does in any sandbox.
type Unisolated struct {
	// Config has the ids of the host in Process, and no Allowed, Hostname, NetNSPath, UserNSPath, IDMap
	// or Mounts. TmpfsBytes or ShmBytes, and TmpfsInodes, bound /dev/shm, the only tmpfs. RootPath is the
	// host's tree, mounted nosuid and nodev.
	Config
	// InitPoint is where InitDir is bound: the directory above all sandboxes' StateDir. So
	// it is there on each host, and covers what the daemon keeps in it.
	InitPoint string
}

// sharedMounts are the base mounts that such a sandbox has. In all other places it has the
// host's files.
var sharedMounts = []string{"/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue"}

// privateNamespaces are those that the runtime makes. Without CAP_SYS_ADMIN nobody can
// change the host name, so the UTS namespace is the host's: programs that look up the
// address of their own host find it.
var privateNamespaces = []specs.LinuxNamespaceType{
	specs.PIDNamespace, specs.IPCNamespace, specs.MountNamespace, specs.CgroupNamespace,
}

var unisolatedChecks = []func(Unisolated) error{
	checkInitPoint,
	checkHostIDs,
	checkUnused,
	checkStatePaths,
}

// BuildUnisolated is Build without isolation from the host.
func BuildUnisolated(c Unisolated) (*specs.Spec, error) {
	var errs []error
	for _, check := range unisolatedChecks {
		errs = append(errs, check(c))
	}
	for _, check := range []func(Config) error{checkID, checkProcess, checkEnv, checkCgroupsPath, checkSeccomp, checkResources, checkRlimits, checkBounds, checkAnnotations} {
		errs = append(errs, check(c.checked()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Config, "oci.build", err)
	}
	return assembleUnisolated(c), nil
}

// checked is c for the checks of every sandbox: PID 1 lies elsewhere, and is checked apart.
func (c Unisolated) checked() Config {
	if len(c.Process.Args) > 0 {
		c.Process.Args = slices.Concat([]string{InitMount + "/pid1"}, c.Process.Args[1:])
	}
	return c.Config
}

func checkInitPoint(c Unisolated) error {
	if !cleanPath(c.InitPoint) || c.InitPoint == "/" || reserved(c.InitPoint) || !below(c.StateDir, c.InitPoint) {
		return fmt.Errorf("mount point of PID 1 %q is not a clean path above the state directory", c.InitPoint)
	}
	if len(c.Process.Args) == 0 || filepath.Dir(c.Process.Args[0]) != c.InitPoint || !cleanPath(c.Process.Args[0]) {
		return fmt.Errorf("program of pid 1 %q does not lie in %q", c.Process.Args, c.InitPoint)
	}
	return nil
}

func checkHostIDs(c Unisolated) error {
	var errs []error
	for name, id := range map[string]uint32{"uid": c.Process.UID, "gid": c.Process.GID} {
		if id == 0 || id >= maxID && id <= maxID+1 || id > maxHostID {
			errs = append(errs, fmt.Errorf("%s %d is root's, or no user's of the host", name, id))
		}
	}
	if len(c.Process.AdditionalGIDs) > 0 {
		errs = append(errs, errors.New("there are additional groups"))
	}
	return errors.Join(errs...)
}

// checkUnused refuses fields that would not be enforced.
func checkUnused(c Unisolated) error {
	if c.Allowed != (Allowed{}) || c.Hostname != "" || c.NetNSPath != "" || c.UserNSPath != "" || c.IDMap != (IDMap{}) || len(c.Mounts) > 0 || c.HomeDir != "" {
		return errors.New("a writable root, root inside, a host name, namespaces, an id map, mounts or homes cannot be had without isolation")
	}
	return nil
}

func checkStatePaths(c Unisolated) error {
	if !cleanPath(c.StateDir) || filepath.Base(c.StateDir) != c.ID {
		return fmt.Errorf("state directory %q is not a clean absolute path that ends with the id", c.StateDir)
	}
	own := []string{c.RootPath, c.InitDir, c.DevDir}
	for i, p := range own {
		if !cleanPath(p) || !below(p, c.StateDir) || slices.ContainsFunc(own[i+1:], func(o string) bool { return overlap(p, o) }) {
			return fmt.Errorf("root, init and device directory %q are not separate paths below the state directory", own)
		}
	}
	return nil
}

func assembleUnisolated(c Unisolated) *specs.Spec {
	s := assemble(c.Config)
	s.Hostname, s.Root.Readonly = "", false
	s.Linux.UIDMappings, s.Linux.GIDMappings, s.Linux.Namespaces = nil, nil, nil
	for _, t := range privateNamespaces {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: t})
	}
	s.Mounts = nil
	for _, b := range baseMounts {
		if slices.Contains(sharedMounts, b.destination) {
			s.Mounts = append(s.Mounts, b.mount(c.Config))
		}
	}
	s.Mounts = append(s.Mounts, specs.Mount{Destination: c.InitPoint, Type: "bind", Source: c.InitDir, Options: append(slices.Clone(bindOptions), "ro")})
	return s
}

// anyProcesses is as many processes as Linux can have (PID_MAX_LIMIT).
const anyProcesses = 1 << 22

// UnisolatedRlimits are Rlimits for a user of the host. RLIMIT_NPROC counts all processes of
// that user, in whatever sandbox or in none, so it is as high as the limits have allow.
func UnisolatedRlimits(v RlimitValues, have []specs.POSIXRlimit) []specs.POSIXRlimit {
	out := Rlimits(v)
	for i := range out {
		if out[i].Type != "RLIMIT_NPROC" {
			continue
		}
		most := uint64(anyProcesses)
		for _, h := range have {
			if h.Type == out[i].Type {
				most = min(most, h.Hard)
			}
		}
		out[i].Soft, out[i].Hard = most, most
	}
	return out
}
