//go:build cgo

package seccomp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// auditArch is what the kernel calls the architectures in struct seccomp_data.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// machine runs a compiled filter on calls.
type machine struct {
	*Compiled
	vm *bpf.VM
}

// compiled keeps the machines: each test asks for the same few.
var compiled = map[string]machine{}

func compile(t *testing.T, v variant) machine {
	t.Helper()
	if m, ok := compiled[v.String()]; ok {
		return m
	}
	c, err := v.Compile(v.Options)
	if err != nil {
		t.Fatal(err)
	}
	m := machine{c, load(t, c.BPF)}
	compiled[v.String()] = m
	return m
}

// load decodes a program of struct sock_filter. Every instruction must be one that
// the machine knows, or what it says would mean nothing.
func load(t *testing.T, program []byte) *bpf.VM {
	t.Helper()
	raw := make([]bpf.RawInstruction, len(program)/8)
	if err := binary.Read(bytes.NewReader(program), binary.NativeEndian, raw); err != nil {
		t.Fatal(err)
	}
	if len(raw) == 0 || len(raw) > unix.BPF_MAXINSNS {
		t.Fatalf("filter has %d instructions, the kernel takes 1 to %d", len(raw), unix.BPF_MAXINSNS)
	}
	instructions, all := bpf.Disassemble(raw)
	if !all {
		t.Fatal("filter has an instruction that the machine does not know")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// run asks what becomes of a call. The machine loads words in network order where the
// kernel's does in the host's, so each word is written in that order, at the place that
// it has in struct seccomp_data of a little-endian host: number 0, architecture 4,
// instruction pointer 8, and from 16 the arguments, lower half first. Asked half a
// million times, neither it nor decode is a Helper: that takes longer than the machine.
func (m machine) run(t *testing.T, arch uint32, number int, args [6]uint64) verdict {
	var data [64]byte
	word := func(at int, v uint32) { binary.BigEndian.PutUint32(data[at:], v) }
	word(0, uint32(number))
	word(4, arch)
	word(8, 0xcafe)
	for i, a := range args {
		word(16+8*i, uint32(a))
		word(20+8*i, uint32(a>>32))
	}
	out, err := m.vm.Run(data[:])
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, uint32(out))
}

// decode names a filter's return value (linux/seccomp.h).
func decode(t *testing.T, out uint32) verdict {
	switch action := out & 0xffff0000; action {
	case 0x7fff0000:
		return allowed
	case 0x00050000:
		return verdict(unix.ErrnoName(unix.Errno(out & 0xffff)))
	case 0x00000000, 0x80000000:
		return "kill"
	default:
		t.Fatalf("filter returns %#x", out)
		return ""
	}
}

// The compiled filters decide as the rules say, on every call of the kernel and many
// arguments. What this libseccomp does not know stays refused.
func TestFilterMeansTheRules(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.String(), func(t *testing.T) {
			m := compile(t, v)
			few := samples(v.Profile, 64)
			for _, c := range calls(t, v.Arch) {
				rules := v.ruling(c.name)
				for _, args := range rules.vectors(few) {
					want := rules.decide(args)
					if slices.Contains(m.Skipped, c.name) {
						want = refused
					}
					if got := m.run(t, auditArch[v.Arch], c.number, args); got != want {
						t.Fatalf("%s(%#x) = %s, want %s", c.name, args, got, want)
					}
				}
			}
		})
	}
}

// Numbers that are no calls are refused, and whatever comes by the entry of another
// architecture ends the process.
func TestFilterOfOtherNumbersAndArchitectures(t *testing.T) {
	others := map[string]uint32{
		"i386": unix.AUDIT_ARCH_I386, "x86_64": unix.AUDIT_ARCH_X86_64, "arm": unix.AUDIT_ARCH_ARM,
		"aarch64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64, "s390x": unix.AUDIT_ARCH_S390X,
		"zero": 0, "ones": ^uint32(0),
	}
	for _, v := range variants() {
		m, native := compile(t, v), auditArch[v.Arch]
		known := map[int]bool{}
		for _, c := range calls(t, v.Arch) {
			known[c.number] = true
		}
		for number := range 1024 {
			if got := m.run(t, native, number, [6]uint64{}); !known[number] && got != refused {
				t.Errorf("%s: unassigned call %d = %s", v, number, got)
			}
			for name, arch := range others {
				if arch != native && m.run(t, arch, number, [6]uint64{}) != "kill" {
					t.Errorf("%s: call %d of architecture %s is not killed", v, number, name)
				}
			}
			const x32 = 0x40000000
			if got := m.run(t, native, x32|number, [6]uint64{}); v.Arch == "amd64" && got != "kill" {
				t.Errorf("%s: x32 call %d = %s", v, number, got)
			}
		}
		for _, number := range []int{1 << 31, 1<<31 | 1, 0x3fffffff, 0xffffffff} {
			if got := m.run(t, native, number, [6]uint64{}); got == allowed {
				t.Errorf("%s: call %#x is allowed", v, number)
			}
		}
	}
}

// Bits that the kernel does not read change nothing: a filter that looked at them
// could be evaded (CVE-2019-10063) or would refuse what is harmless.
func TestUpperHalfOfIntegersIsIgnored(t *testing.T) {
	integers := map[string][]int{ // arguments that are int, unsigned int or umode_t
		"socket": {0, 1, 2}, "socketpair": {0, 1, 2}, "ioctl": {0, 1}, "personality": {0}, "prctl": {0}, "arch_prctl": {0},
		"seccomp": {0, 1}, "chmod": {1}, "fchmod": {1}, "fchmodat": {2}, "open": {1, 2}, "openat": {2, 3}, "creat": {1},
		"mknod": {1}, "mknodat": {2}, "madvise": {2}, "setsockopt": {1, 2}, "clone": {0}, "prlimit64": {0, 1}, "fcntl": {0, 1},
	}
	v := variant{profiles[0], Options{Arch: "amd64"}}
	m := compile(t, v)
	for _, c := range calls(t, v.Arch) {
		rules := v.ruling(c.name)
		if len(rules) == 0 || len(rules[0].Args) == 0 {
			continue
		}
		places, ok := integers[c.name]
		if !ok {
			t.Errorf("%s is conditional but not in this test", c.name)
		}
		for _, args := range rules.vectors(nil) {
			want := m.run(t, unix.AUDIT_ARCH_X86_64, c.number, args)
			for _, i := range places {
				for _, garbage := range []uint64{1 << 32, 1 << 63, 0xffffffff << 32} {
					changed := args
					changed[i] ^= garbage
					if got := m.run(t, unix.AUDIT_ARCH_X86_64, c.number, changed); got != want {
						t.Fatalf("%s(%#x) = %s, but %s for %#x", c.name, changed, got, want, args)
					}
				}
			}
		}
	}
}

// Names up to Linux 5.17 have no mark, later ones do: else a host with the oldest
// supported libseccomp could not prove the filter, or a typing error would go unseen.
func TestOptionalNames(t *testing.T) {
	for _, v := range variants() {
		for _, r := range v.Active(v.Options) {
			for _, name := range r.Syscalls {
				if r.Optional != slices.Contains(sinceLinux517, name) {
					t.Errorf("%s: %s is marked optional: %v", v, name, r.Optional)
				}
			}
		}
	}
}

// TestPFC keeps libseccomp's own text of each filter. The text depends on the library's
// version, so there is one set of files for each version that was looked at.
func TestPFC(t *testing.T) {
	for _, p := range profiles {
		v := variant{p, Options{Arch: "amd64"}}
		m := compile(t, v)
		dir := "pfc/" + m.Library + "/"
		if _, err := os.Stat("testdata/" + dir); err != nil && !*update {
			need.Missing(t, fmt.Sprintf("the text for libseccomp %s: go test ./seccomp -update writes it", m.Library))
		}
		golden(t, dir+v.String()+".golden", m.PFC)
	}
}

func TestCompileRefuses(t *testing.T) {
	rule := func(names string) Profile {
		return Profile{Rules: []Rule{{Syscalls: fields(names), Allow: true, Why: "test"}}}
	}
	tests := []struct {
		name    string
		profile Profile
		options Options
		want    string
	}{
		{"empty profile", Profile{}, Options{}, "no rules"},
		{"unknown name", rule("read frobnicate"), Options{}, `resolve system call "frobnicate"`},
		{"name of another architecture", rule("read open"), Options{Arch: "arm64"}, `system call "open" does not exist on arm64`},
		{"architecture", profiles[0], Options{Arch: "vax"}, `"vax"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.profile.Compile(test.options)
			if !errors.Is(err, sbxerr.Seccomp) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Compile() = %v, want %q", err, test.want)
			}
		})
	}
}

func TestCompileSkipsOptionalNames(t *testing.T) {
	p := Profile{Rules: []Rule{
		{Syscalls: fields("read"), Allow: true, Why: "test"},
		{Syscalls: fields("frobnicate"), Allow: true, Optional: true, Why: "test"},
	}}
	c, err := p.Compile(Options{})
	if err != nil || !slices.Equal(c.Skipped, []string{"frobnicate"}) {
		t.Errorf("Compile() = %v, %v", c, err)
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := profiles[0].Compile(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
