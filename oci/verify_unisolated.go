package oci

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// VerifyUnisolated is Verify for a sandbox without isolation from the host. Its user is one
// of the host, and its root the host's. It has the namespaces and mounts that such a sandbox
// can have, and no other. Neither takes a specification of the other kind.
func VerifyUnisolated(spec *specs.Spec) error {
	return verify(spec, ruleUnisolatedInit, ruleUnisolatedRoot, ruleUnisolatedNamespaces, ruleUnisolatedUser, ruleNoCapabilities, ruleUnisolatedMounts)
}

// ruleUnisolatedInit: PID 1 lies in the sandbox's own directory of it, which is bound
// read-only to a directory of the daemon.
func ruleUnisolatedInit(s *specs.Spec) error {
	m, ok := initBind(s)
	if !ok || !slices.Contains(m.Options, "ro") {
		return errors.New("the directory of pid 1 is not mounted read-only")
	}
	if !strings.HasPrefix(sandboxDir(s), m.Destination+"/") || slices.Contains([]string{"/", "/proc", "/dev", "/sys"}, "/"+strings.SplitN(m.Destination+"/", "/", 3)[1]) {
		return fmt.Errorf("the directory of pid 1 is mounted on %q, which does not hold that of the sandbox", m.Destination)
	}
	if len(s.Process.Args) == 0 || path.Dir(s.Process.Args[0]) != m.Destination || path.Clean(s.Process.Args[0]) != s.Process.Args[0] {
		return fmt.Errorf("pid 1 %q is not ours", s.Process.Args)
	}
	return nil
}

func initBind(s *specs.Spec) (specs.Mount, bool) {
	i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Source == sandboxDir(s)+"/init" })
	if i < 0 {
		return specs.Mount{}, false
	}
	return s.Mounts[i], true
}

func ruleUnisolatedRoot(s *specs.Spec) error {
	if r := s.Root; r.Readonly || !path.IsAbs(r.Path) || path.Clean(r.Path) != r.Path || path.Base(r.Path) != "rootfs" || path.Dir(sandboxDir(s)) == "/" {
		return fmt.Errorf("root %q is not the writable rootfs of a sandbox's directory", r.Path)
	}
	if s.Hostname != "" {
		return fmt.Errorf("host name %q is set, which would be the host's", s.Hostname)
	}
	return nil
}

func ruleUnisolatedNamespaces(s *specs.Spec) error {
	if len(s.Linux.UIDMappings)+len(s.Linux.GIDMappings) > 0 {
		return errors.New("ids are mapped without a user namespace")
	}
	var kinds []string
	for _, n := range s.Linux.Namespaces {
		kinds = append(kinds, string(n.Type))
		if n.Path != "" {
			return fmt.Errorf("namespace %s is an existing one", n.Type)
		}
	}
	if slices.Sort(kinds); strings.Join(kinds, " ") != "cgroup ipc mount pid" {
		return fmt.Errorf("namespaces are %q, not cgroup, ipc, mount and pid", kinds)
	}
	return nil
}

func ruleUnisolatedUser(s *specs.Spec) error {
	u := s.Process.User
	for _, id := range []uint32{u.UID, u.GID} {
		if id == 0 || id == 65534 || id == 65535 || id >= 1<<31 {
			return fmt.Errorf("user %d:%d is root, nobody or in its group", u.UID, u.GID)
		}
	}
	if len(u.AdditionalGids) > 0 {
		return fmt.Errorf("groups %v are additional", u.AdditionalGids)
	}
	if u.Umask == nil || *u.Umask&0o022 != 0o022 {
		return errors.New("umask is missing or lets others write")
	}
	return nil
}

func ruleUnisolatedMounts(s *specs.Spec) error {
	var errs []error
	var seen []string
	for i, m := range s.Mounts {
		if err := errors.Join(ruleMount(s, m), ruleOrder(m, s.Mounts[:i])); err != nil {
			errs = append(errs, fmt.Errorf("mount on %q: %w", m.Destination, err))
		}
		seen = append(seen, m.Destination)
	}
	bind, _ := initBind(s)
	want := append(strings.Fields("/dev /dev/mqueue /dev/pts /dev/shm /proc"), bind.Destination)
	slices.Sort(want)
	if slices.Sort(seen); !slices.Equal(seen, want) {
		errs = append(errs, fmt.Errorf("mounts are on %q, not on %q", seen, want))
	}
	return errors.Join(errs...)
}
