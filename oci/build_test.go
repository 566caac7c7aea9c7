package oci

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ofBuild allows all that a step of a build may have.
var ofBuild = Allowed{WritableRoot: true, RootUser: true, Setup: true}

// buildSpec is the specification of a build step of a user.
func buildSpec(t *testing.T, uid uint32) *specs.Spec {
	t.Helper()
	c := good()
	c.Allowed, c.Process.UID, c.Process.GID = ofBuild, uid, uid
	spec, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestBuildStepIsNoSandbox: what only a build step may have is refused to all others, and
// only root in a build step has capabilities.
func TestBuildStepIsNoSandbox(t *testing.T) {
	root, user := buildSpec(t, 0), buildSpec(t, 33)
	for name, s := range map[string]*specs.Spec{"root": root, "user": user} {
		if err := VerifyAllowed(s, ofBuild); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err := Verify(s)
		for _, want := range []string{"root can be written", "nothing is mounted on /home"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s as a sandbox: %v, want %q", name, err, want)
			}
		}
	}
	if err := Verify(root); !strings.Contains(err.Error(), "CAP_SETUID") || !strings.Contains(err.Error(), "the user is root") {
		t.Errorf("root as a sandbox: %v", err)
	}
	if c := user.Process.Capabilities; len(c.Bounding)+len(c.Effective)+len(c.Permitted) > 0 {
		t.Errorf("capabilities of a user: %+v", c)
	}
	sandbox := goodSpec(t)
	if err := VerifyAllowed(sandbox, ofBuild); err == nil || !strings.Contains(err.Error(), "root cannot be written") {
		t.Errorf("a sandbox as a build step: %v", err)
	}
}

func TestVerifyBuildRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*specs.Spec)
		want   string
	}{
		"one more":          {func(s *specs.Spec) { add(&s.Process.Capabilities.Effective, "CAP_MKNOD") }, "CAP_MKNOD"},
		"one more to bound": {func(s *specs.Spec) { add(&s.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") }, "CAP_SYS_ADMIN"},
		"one less":          {func(s *specs.Spec) { s.Process.Capabilities.Permitted = s.Process.Capabilities.Permitted[1:] }, "not [CAP_CHOWN"},
		"ambient":           {func(s *specs.Spec) { add(&s.Process.Capabilities.Ambient, "CAP_CHOWN") }, "ambient"},
		"of a user":         {func(s *specs.Spec) { s.Process.User.UID = 1 }, "capability set"},
		"absent":            {func(s *specs.Spec) { s.Process.Capabilities = nil }, "absent"},
		"new privileges":    {func(s *specs.Spec) { s.Process.NoNewPrivileges = false }, "privileges"},
		"a home":            {func(s *specs.Spec) { s.Mounts = append(s.Mounts, goodSpec(t).Mounts[8]) }, "hides that of the image"},
		"a group outside":   {func(s *specs.Spec) { s.Process.User.GID = 65535 }, "outside the id block"},
	} {
		s := buildSpec(t, 0)
		tt.change(s)
		if err := VerifyAllowed(s, ofBuild); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func add(set *[]string, name string) { *set = append(slices.Clone(*set), name) }
