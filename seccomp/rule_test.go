package seccomp

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRuleCheck(t *testing.T) {
	good := Rule{Syscalls: fields("read"), Allow: true, Why: "reading"}
	newArg := func() Arg { return Arg{Index: 1, Name: "flags", Mask: 0xff, Values: []Value{{1, "ONE"}}} }
	with := func(change func(*Rule)) Rule { r := good; change(&r); return r }
	withArg := func(change func(*Arg)) Rule {
		return with(func(r *Rule) { a := newArg(); change(&a); r.Args = []Arg{a} })
	}
	tests := []struct {
		name string
		rule Rule
		want string // part of the error; empty is none
	}{
		{"good", good, ""},
		{"good argument", withArg(func(*Arg) {}), ""},
		{"good bound", withArg(func(a *Arg) { a.Not, a.Under = true, 16 }), ""},
		{"zero", Rule{}, "exactly one of"},
		{"no names", with(func(r *Rule) { r.Syscalls = nil }), "no system call"},
		{"no reason", with(func(r *Rule) { r.Why = " \n" }), "no reason"},
		{"no action", with(func(r *Rule) { r.Allow = false }), "exactly one of"},
		{"two actions", with(func(r *Rule) { r.Errno = unix.ENOSYS }), "exactly one of"},
		{"the default's error", with(func(r *Rule) { r.Allow, r.Errno = false, unix.EPERM }), "EPERM is the default"},
		{"architecture", with(func(r *Rule) { r.Arch = "vax" }), `architecture "vax"`},
		{"argument twice", with(func(r *Rule) { r.Args = []Arg{newArg(), newArg()} }), "argument 1 is compared twice"},
		{"argument 6", withArg(func(a *Arg) { a.Index = 6 }), "argument 6 does not exist"},
		{"no argument name", withArg(func(a *Arg) { a.Name = "" }), "has no name"},
		{"no mask", withArg(func(a *Arg) { a.Mask = 0 }), "compares nothing"},
		{"no values", withArg(func(a *Arg) { a.Values = nil }), "compared with nothing"},
		{"value outside the mask", withArg(func(a *Arg) { a.Values[0].Bits = 0x100 }), "bits outside the mask"},
		{"value twice", withArg(func(a *Arg) { a.Values = []Value{{1, "A"}, {1, "B"}} }), "listed twice"},
		{"bound on a list", withArg(func(a *Arg) { a.Under = 16 }), "a bound must"},
		{"odd bound", withArg(func(a *Arg) { a.Not, a.Under = true, 24 }), "a bound must"},
		{"bound beyond the mask", withArg(func(a *Arg) { a.Not, a.Under = true, 512 }), "a bound must"},
		{"value beyond the bound", withArg(func(a *Arg) {
			a.Not, a.Under, a.Values = true, 16, []Value{{16, "B"}}
		}), "is not under"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := test.rule.check(); err != nil {
				got = err.Error()
			}
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("check() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestRuleCheckReportsAll(t *testing.T) {
	err := Rule{Arch: "vax", Args: []Arg{{}}}.check()
	for _, want := range []string{"no system call", "no reason", "exactly one", "vax", "no name", "compares nothing", "with nothing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("check() = %v, lacks %q", err, want)
		}
	}
}

func TestCondition(t *testing.T) {
	tests := []struct {
		args []Arg
		want string
	}{
		{nil, ""},
		{[]Arg{families, stream}, "family = AF_INET | AF_INET6, type & 0xf = SOCK_STREAM"},
		{[]Arg{{Name: "x", Not: true, Values: []Value{{1, "A"}, {2, "B"}}}}, "x ≠ A, B"},
		{[]Arg{{Name: "x", Not: true, Under: 64, Values: []Value{{1, "A"}}}}, "x < 64 and ≠ A"},
	}
	for _, test := range tests {
		if got := (Rule{Args: test.args}).Condition(); got != test.want {
			t.Errorf("Condition() = %q, want %q", got, test.want)
		}
	}
}

// FuzzCubes compares the cubes of a condition on 10 bits with its meaning, for all of
// their values: each is in exactly one cube or in none.
func FuzzCubes(f *testing.F) {
	f.Add(uint16(0x3ff), false, uint8(0), uint16(1), uint16(2), uint16(3))
	f.Add(uint16(0x3ff), true, uint8(6), uint16(31), uint16(0), uint16(63))
	f.Add(uint16(0x3ff), false, uint8(0), uint16(10), uint16(2), uint16(1))
	f.Add(uint16(0x2a5), true, uint8(0), uint16(0x200), uint16(0x205), uint16(0))
	f.Fuzz(func(t *testing.T, mask uint16, not bool, under uint8, v1, v2, v3 uint16) {
		a := Arg{Name: "a", Mask: uint64(mask) & 0x3ff, Not: not}
		if not && under%10 != 0 {
			a.Under = 1 << (under % 10)
		}
		for _, v := range []uint16{v1, v2, v3} {
			bits := uint64(v) & a.Mask
			if !slices.Contains(a.Values, Value{bits, "v"}) {
				a.Values = append(a.Values, Value{bits, "v"})
			}
		}
		if a.check() != nil {
			t.Skip("not a valid condition")
		}
		cubes := a.cubes()
		for v := range uint64(1 << 10) {
			hits := 0
			for _, c := range cubes {
				if c.bits&^c.mask != 0 {
					t.Fatalf("cube %+v can never hold", c)
				}
				if v&c.mask == c.bits {
					hits++
				}
			}
			want := 0
			if a.holds([6]uint64{v}) {
				want = 1
			}
			if hits != want {
				t.Fatalf("%+v: value %#x is in %d cubes of %+v, want %d", a, v, hits, cubes, want)
			}
		}
	})
}

func TestMergeJoinsFamilies(t *testing.T) {
	if got := families.cubes(); len(got) != 1 {
		t.Errorf("AF_INET and AF_INET6 take %d cubes, want 1", len(got))
	}
}
