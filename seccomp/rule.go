package seccomp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Rule says what happens to some system calls. Why is shown by `caisson spec
// --seccomp` and required by a test: an entry that nobody can justify is an entry
// nobody can remove.
type Rule struct {
	Syscalls []string
	Args     []Arg // all must hold; at most one per argument; none is always

	// Exactly one of these three is set. A rule without any is invalid, so that an
	// omission cannot allow anything.
	Allow   bool
	Errno   unix.Errno // refuse with this error; never EPERM, see check
	Pretend bool       // do nothing and report success

	Why      string
	Arch     string // GOARCH that alone has these names; empty is all
	Optional bool   // newer than Linux 5.17, the table of libseccomp 2.5.4: may not resolve
	When     When
}

// When limits a rule to sandboxes with or without a network.
type When int

// The values of When. The zero value is every sandbox.
const (
	Always When = iota
	WithNetwork
	WithoutNetwork
)

// Arg is a condition on one argument: its bits under Mask are one of Values, or,
// with Not, none of them but less than Under.
type Arg struct {
	Index  uint   // 0 to 5
	Name   string // the comparison in a reader's terms: "type & 0xf"
	Mask   uint64 // the bits that the kernel reads, or fewer
	Not    bool
	Under  uint64 // with Not: a power of two; 0 is no bound
	Values []Value
}

// Value is one value of an argument with the name by which headers call it.
type Value struct {
	Bits uint64
	Name string
}

// bits32 masks the bits that the kernel reads of an int or unsigned int argument.
const bits32 = 0xffffffff

// zero is the value for "none of the bits under the mask".
var zero = Value{0, "0"}

// fields splits a list of names; a raw string of them reads better than quotes.
func fields(names string) []string { return strings.Fields(names) }

// String renders the condition for people.
func (a Arg) String() string {
	op, sep := " = ", " | "
	if a.Not {
		op, sep = " ≠ ", ", "
	}
	if a.Under != 0 {
		op = fmt.Sprintf(" < %d and", a.Under) + op
	}
	names := make([]string, len(a.Values))
	for i, v := range a.Values {
		names[i] = v.Name
	}
	return a.Name + op + strings.Join(names, sep)
}

// Condition renders all of r's conditions; empty is unconditional.
func (r Rule) Condition() string {
	parts := make([]string, len(r.Args))
	for i, a := range r.Args {
		parts[i] = a.String()
	}
	return strings.Join(parts, ", ")
}

// Action returns "allow", "pretend" or the name of the error.
func (r Rule) Action() string {
	switch {
	case r.Allow:
		return "allow"
	case r.Pretend:
		return "pretend"
	}
	return unix.ErrnoName(r.Errno)
}

// check returns all that is wrong with r alone.
func (r Rule) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(r.Syscalls) == 0 {
		bad("no system call is named")
	}
	if strings.TrimSpace(r.Why) == "" {
		bad("no reason is given")
	}
	if set := []bool{r.Allow, r.Errno != 0, r.Pretend}; len(slices.DeleteFunc(set, func(is bool) bool { return !is })) != 1 {
		bad("exactly one of allow, an error and pretending is needed")
	}
	if r.Errno == refusal {
		bad("%s is the default: runc would skip the rule", unix.ErrnoName(refusal))
	}
	if r.Arch != "" && arches[r.Arch] == "" {
		bad("architecture %q is not known", r.Arch)
	}
	for i, a := range r.Args {
		if slices.ContainsFunc(r.Args[:i], func(b Arg) bool { return b.Index == a.Index }) {
			bad("argument %d is compared twice: runc would take either for enough", a.Index)
		}
		errs = append(errs, a.check())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rule for %q: %w", r.Syscalls, err)
	}
	return nil
}

// check returns all that is wrong with a.
func (a Arg) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if a.Index > 5 {
		bad("argument %d does not exist", a.Index)
	}
	if a.Name == "" {
		bad("argument %d has no name", a.Index)
	}
	if a.Mask == 0 {
		bad("argument %d: a mask of 0 compares nothing", a.Index)
	}
	if len(a.Values) == 0 {
		bad("argument %d is compared with nothing", a.Index)
	}
	if a.Under != 0 && (!a.Not || a.Under&(a.Under-1) != 0 || a.Mask&(a.Under-1) != a.Under-1) {
		bad("argument %d: a bound must be a power of two inside the mask, and excludes more", a.Index)
	}
	for i, v := range a.Values {
		if a.Under != 0 && v.Bits >= a.Under {
			bad("argument %d: value %#x is not under %#x", a.Index, v.Bits, a.Under)
		}
		if v.Bits&^a.Mask != 0 {
			bad("argument %d: value %#x has bits outside the mask %#x", a.Index, v.Bits, a.Mask)
		}
		if slices.ContainsFunc(a.Values[:i], func(w Value) bool { return w.Bits == v.Bits }) {
			bad("argument %d: value %#x is listed twice", a.Index, v.Bits)
		}
	}
	return errors.Join(errs...)
}
