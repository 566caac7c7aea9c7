package seccomp

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// verdict is what becomes of a call: "allow", "kill" or the name of an error.
type verdict string

const allowed, refused verdict = "allow", "EPERM"

// holds is the meaning of an Arg, written down a second time and without cubes: the
// tests compare what is rendered and compiled with it.
func (a Arg) holds(args [6]uint64) bool {
	value := args[a.Index] & a.Mask
	listed := slices.ContainsFunc(a.Values, func(v Value) bool { return v.Bits == value })
	if !a.Not {
		return listed
	}
	return !listed && (a.Under == 0 || value < a.Under)
}

// ruling is the rules of one profile about one call.
type ruling []Rule

func (v variant) ruling(name string) ruling {
	var out ruling
	for _, r := range v.Active(v.Options) {
		if slices.Contains(r.Syscalls, name) {
			out = append(out, r)
		}
	}
	return out
}

// decide is the meaning of rules. No two matching ones differ, see conflict.
func (rules ruling) decide(args [6]uint64) verdict {
	for _, r := range rules {
		if !slices.ContainsFunc(r.Args, func(a Arg) bool { return !a.holds(args) }) {
			return verdict(r.Action())
		}
	}
	return refused
}

// entries returns what spec says of one call.
func entries(spec *specs.LinuxSeccomp, name string) []specs.LinuxSyscall {
	var out []specs.LinuxSyscall
	for _, s := range spec.Syscalls {
		if slices.Contains(s.Names, name) {
			out = append(out, s)
		}
	}
	return out
}

// decideOCI is what runc makes of a call's entries, for the forms that we use.
func decideOCI(t *testing.T, entries []specs.LinuxSyscall, args [6]uint64) verdict {
	t.Helper()
	for _, s := range entries {
		match := true
		for _, a := range s.Args {
			if a.Op != specs.OpMaskedEqual {
				t.Fatalf("%s is compared by %s", s.Names, a.Op)
			}
			match = match && args[a.Index]&a.Value == a.ValueTwo
		}
		if match && s.Action == specs.ActAllow {
			return allowed
		}
		if match {
			return verdict(unix.ErrnoName(unix.Errno(*s.ErrnoRet)))
		}
	}
	return refused
}

// variant is one filter of the package.
type variant struct {
	Profile
	Options
}

func (v variant) String() string {
	if v.Network {
		return v.Name + "_" + v.Arch + "_network"
	}
	return v.Name + "_" + v.Arch
}

// variants are all filters that the package can make.
func variants() []variant {
	var out []variant
	for _, p := range profiles {
		for _, arch := range []string{"amd64", "arm64"} {
			out = append(out, variant{p, Options{Arch: arch}}, variant{p, Options{Arch: arch, Network: true}})
		}
	}
	return out
}

// call is one line of the kernel's table.
type call struct {
	number int
	name   string
}

// calls reads the kernel's table for arch.
func calls(t *testing.T, arch string) []call {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "syscalls_"+arch+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []call
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c call
		if n, _ := fmt.Sscan(lines.Text(), &c.number, &c.name); n == 2 {
			out = append(out, c)
		}
	}
	if len(out) < 300 {
		t.Fatalf("table of %s has only %d calls", arch, len(out))
	}
	return out
}

// golden compares got with a file of testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./seccomp -update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run go test ./seccomp -update and read the diff", path)
	}
}

// interesting are argument values near which filters go wrong: what rules compare
// with, its neighbours, single bits, and all of it with garbage in the upper half.
func interesting(p Profile) []uint64 {
	set := map[uint64]bool{0: true, ^uint64(0): true, bits32: true}
	for bit := range 64 {
		set[1<<bit] = true
	}
	for _, r := range p.Rules {
		for _, a := range r.Args {
			set[a.Mask], set[^a.Mask], set[a.Under] = true, true, true
			for _, v := range a.Values {
				set[v.Bits], set[v.Bits+1], set[v.Bits-1] = true, true, true
				set[v.Bits|0xdeadbeef<<32], set[v.Bits|^a.Mask] = true, true
			}
		}
	}
	var out []uint64
	for v := range set {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}

// samples returns argument vectors made of interesting values, the same in each run.
func samples(p Profile, n int) [][6]uint64 {
	values, random := interesting(p), rand.New(rand.NewPCG(1, 2))
	out := make([][6]uint64, n)
	for i := range out {
		for j := range out[i] {
			out[i][j] = values[random.IntN(len(values))]
		}
	}
	return out
}

// vectors returns the argument vectors to try on a call: many if rules condition it,
// made of what those rules compare with, else a few.
func (rules ruling) vectors(few [][6]uint64) [][6]uint64 {
	if len(rules) == 0 || len(rules[0].Args) == 0 {
		return few[:8]
	}
	return slices.Concat(few, samples(Profile{Rules: rules}, 3000))
}
