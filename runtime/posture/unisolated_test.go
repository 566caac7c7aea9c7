package posture

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestUnisolatedIsDeclared: a sandbox with isolation is not taken for one without, nor is the
// declaration taken that lacks the mounts of the host or has them in vain.
func TestUnisolatedIsDeclared(t *testing.T) {
	host := []Place{{Device: "254:0", Root: "/", Point: "/"}}
	s := loadScene(t)
	s.declared.Unisolated, s.declared.HostMounts = true, host
	s.declared.Spec = withHostIDs(s.declared.Spec)
	s.declared.Spec.Linux.Namespaces = slices.DeleteFunc(slices.Clone(s.declared.Spec.Linux.Namespaces), func(n specs.LinuxNamespace) bool {
		return n.Type == specs.UserNamespace || n.Type == specs.NetworkNamespace || n.Type == specs.UTSNamespace
	})
	results, err := s.compare()
	if err == nil {
		t.Error("a sandbox with isolation passes")
	}
	for _, name := range []string{"uid", "gid", "uid_map", "gid_map", "mount /", "namespace.net", "namespace.user", "namespace.uts"} {
		if !slices.ContainsFunc(results, func(r Result) bool { return r.Name == name && !r.OK }) {
			t.Errorf("%s does not tell", name)
		}
	}
	spec := loadScene(t).declared.Spec
	bare := *spec
	linux := *spec.Linux
	linux.UIDMappings, linux.GIDMappings = nil, nil
	bare.Linux = &linux
	for want, d := range map[string]Declared{
		"which has some":                  {Spec: &bare, Unisolated: true},
		"for a sandbox without isolation": {Spec: spec, HostMounts: host},
		"maps ids":                        {Spec: spec, Unisolated: true, HostMounts: host},
	} {
		d.PID, d.PIDFD = 1, os.Stdin // which is not looked at
		if err := d.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", d, err, want)
		}
	}
}
