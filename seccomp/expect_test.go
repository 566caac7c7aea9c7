//go:build cgo

package seccomp

import (
	"encoding/binary"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/seccomp/decide"
)

func own() []variant {
	return slices.DeleteFunc(variants(), func(v variant) bool { return v.Arch != goruntime.GOARCH })
}

// Every profile can be expected, which proves that libseccomp's program means its rules.
// Against the bare program, calls newer than its table are the one difference.
func TestExpect(t *testing.T) {
	for _, v := range own() {
		spec, err := v.Spec(v.Options)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Expect(spec)
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		d, err := decide.Compare(e, parsed(t, spec))
		if err != nil || d == nil || d.Want != decide.Refuse(38) || d.Got != decide.Refuse(1) {
			t.Errorf("%s: the program without runc's check: %v, %v", v, d, err)
		}
	}
}

func parsed(t *testing.T, spec *specs.LinuxSeccomp) *decide.Program {
	t.Helper()
	c, err := CompileSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	p, err := decide.Parse(c.BPF)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChangedPrograms changes one instruction of a compiled filter at a time. What is
// still taken for the same must decide as before on every call and many arguments; most
// changes must be found.
func TestChangedPrograms(t *testing.T) {
	v := variant{profiles[0], Options{Arch: goruntime.GOARCH}}
	m := compile(t, v)
	honest, err := decide.Parse(m.BPF)
	if err != nil {
		t.Fatal(err)
	}
	step := 8 // bytes, an instruction
	if testing.Short() {
		step *= 13
	}
	changes, found := 0, 0
	for at := 0; at < len(m.BPF); at += step {
		for _, change := range []func([]byte){
			func(b []byte) { b[2], b[3] = b[3], b[2] }, // the branches
			func(b []byte) { binary.NativeEndian.PutUint32(b[4:], binary.NativeEndian.Uint32(b[4:])^1) },
		} {
			raw := slices.Clone(m.BPF)
			change(raw[at:])
			changed, err := decide.Parse(raw)
			if err != nil || slices.Equal(raw, m.BPF) {
				continue
			}
			changes++
			d, err := decide.Compare(honest, changed)
			if err != nil {
				t.Fatal(err)
			}
			if d != nil {
				found++
				continue
			}
			sameOnSamples(t, m, machine{&Compiled{}, load(t, raw)}, v, at/8)
		}
	}
	if changes < 100/(step/8) || found < changes*9/10 {
		t.Errorf("%d of %d changes are found", found, changes)
	}
	t.Logf("%d of %d changes are found", found, changes)
}

func sameOnSamples(t *testing.T, m, changed machine, v variant, at int) {
	t.Helper()
	for _, c := range calls(t, v.Arch) {
		for _, args := range samples(Profile{Rules: v.ruling(c.name)}, 40) {
			if m.run(t, auditArch[v.Arch], c.number, args) != changed.run(t, auditArch[v.Arch], c.number, args) {
				t.Fatalf("a change of instruction %d, which decides %s(%#x), is not found", at, c.name, args)
			}
		}
	}
}

func TestExpectRefuses(t *testing.T) {
	good := func() *specs.LinuxSeccomp {
		spec, err := profiles[0].Spec(Options{})
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	for _, tt := range []struct {
		name, want string
		change     func(*specs.LinuxSeccomp)
	}{
		{"a default that allows", "default action", func(s *specs.LinuxSeccomp) { s.DefaultAction = specs.ActAllow }},
		{"a default without an error", "default action", func(s *specs.LinuxSeccomp) { s.DefaultErrnoRet = nil }},
		{"two architectures", "not this one alone", func(s *specs.LinuxSeccomp) { s.Architectures = append(s.Architectures, specs.ArchX86) }},
		{"an action of another kind", "action SCMP_ACT_LOG", func(s *specs.LinuxSeccomp) { s.Syscalls[0].Action = specs.ActLog }},
		{"an error without a number", "action SCMP_ACT_ERRNO", func(s *specs.LinuxSeccomp) { s.Syscalls[0].Action, s.Syscalls[0].ErrnoRet = specs.ActErrno, nil }},
		{"a comparison of another kind", "comparison SCMP_CMP_GE", func(s *specs.LinuxSeccomp) {
			s.Syscalls[0].Args = []specs.LinuxSeccompArg{{Op: specs.OpGreaterEqual}}
		}},
		{"no rules", "no call is named", func(s *specs.LinuxSeccomp) { s.Syscalls = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := good()
			tt.change(spec)
			if _, err := Expect(spec); sbxerr.Of(err) != sbxerr.Seccomp || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Expect() = %v, want %q", err, tt.want)
			}
		})
	}
}
