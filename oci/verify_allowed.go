package oci

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// VerifyAllowed is Verify for a sandbox with further rights. /home is part of a writable root.
// With Setup, root has seven capabilities and every other user none.
func VerifyAllowed(spec *specs.Spec, may Allowed) error {
	user, capabilities := ruleUser, ruleNoCapabilities
	root, home := ruleReadOnlyRoot, ruleHome
	if may.RootUser {
		user = ruleRootUser
	}
	if may.Setup {
		capabilities = ruleSetupCapabilities
	}
	if may.WritableRoot {
		root, home = ruleWritableRoot, ruleNoHome
	}
	return verifyImage(spec, user, capabilities, root, home)
}

// ruleRootUser accepts root, which is root in the sandbox's user namespace only.
func ruleRootUser(s *specs.Spec) error {
	u := s.Process.User
	if u.UID >= 65535 || u.GID >= 65535 {
		return fmt.Errorf("user %d:%d is outside the id block", u.UID, u.GID)
	}
	for _, id := range u.AdditionalGids {
		if id == 0 || id >= 65535 {
			return fmt.Errorf("user or group %d is root or outside the id block", id)
		}
	}
	if u.Umask == nil || *u.Umask&0o022 != 0o022 {
		return errors.New("umask is missing or lets others write")
	}
	return nil
}

func ruleSetupCapabilities(s *specs.Spec) error {
	if s.Process.User.UID != 0 {
		return ruleNoCapabilities(s)
	}
	c := s.Process.Capabilities
	if c == nil {
		return errors.New("capabilities are absent, which means the runtime's own")
	}
	if len(c.Inheritable)+len(c.Ambient) > 0 {
		return fmt.Errorf("capabilities %v are inheritable and %v ambient", c.Inheritable, c.Ambient)
	}
	want := strings.Fields("CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID")
	for _, set := range [][]string{c.Bounding, c.Effective, c.Permitted} {
		if !slices.Equal(slices.Sorted(slices.Values(set)), want) {
			return fmt.Errorf("capabilities of root are %v, not %v", set, want)
		}
	}
	return nil
}

func ruleWritableRoot(s *specs.Spec) error {
	if s.Root.Readonly {
		return errors.New("root cannot be written")
	}
	return nil
}
