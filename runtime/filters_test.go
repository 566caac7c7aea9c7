package runtime

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A specification is read as it was written, and sandboxes share the filter that they
// have in common.
func TestReadSpec(t *testing.T) {
	spec := func(host, call string) *specs.Spec {
		s := &specs.Spec{Hostname: host, Linux: &specs.Linux{MaskedPaths: []string{"/proc/keys"}}}
		if call != "" {
			s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{{Names: []string{call}, Action: specs.ActAllow}}}
		}
		return s
	}
	dir, known := t.TempDir(), &filters{}
	var got []*specs.Spec
	for _, want := range []*specs.Spec{spec("a", "read"), spec("b", "read"), spec("c", "write"), spec("d", ""), {Hostname: "e"}} {
		path := filepath.Join(dir, want.Hostname)
		if err := writeRecord(path, want); err != nil {
			t.Fatal(err)
		}
		s, err := readSpec(path, known)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(s, want) {
			t.Errorf("%+v, want %+v", s, want)
		}
		got = append(got, s)
	}
	if got[0].Linux.Seccomp != got[1].Linux.Seccomp || got[0].Linux.Seccomp == got[2].Linux.Seccomp {
		t.Error("equal filters are not shared, or others are")
	}
}
