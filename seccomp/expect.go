package seccomp

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/seccomp/decide"
)

// Expected is what a live filter must decide.
type Expected struct{ decide.Decider }

// Expect compiles spec, a filter in its OCI form, with libseccomp and adds the check of
// runc for calls that are newer than all named ones. It also proves the compiled program
// to mean what spec says: a fault of the compiler would otherwise be expected, too.
func Expect(spec *specs.LinuxSeccomp) (*Expected, error) {
	const op = "seccomp.expect"
	c, err := CompileSpec(spec)
	if err != nil {
		return nil, err
	}
	program, err := decide.Parse(c.BPF)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Seccomp, op, err)
	}
	declared, err := declaredOf(spec, c.Numbers)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Seccomp, op, err)
	}
	e := &Expected{Decider: decide.Newer{
		Decider: program, Arch: ownArch, Then: decide.Refuse(uint32(unix.ENOSYS)),
		Last: slices.Max(slices.Collect(maps.Values(c.Numbers))),
	}}
	switch d, err := decide.Compare(declared, program); {
	case err != nil:
		return nil, sbxerr.Wrap(sbxerr.Seccomp, op, err)
	case d != nil:
		return nil, sbxerr.New(sbxerr.Seccomp, op, "libseccomp %s compiled something else: %s", c.Library, e.Describe(*d))
	}
	return e, nil
}

// LetsNetlink reports whether a program can have a netlink socket, so that somebody must
// bound their number.
func (e *Expected) LetsNetlink() bool {
	ask := decide.CallOf(ownArch, unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE})
	ret, _ := e.Decide(ask) // everything about the call is known
	return ret == decide.Allow
}

// Describe tells a difference with the name of the call.
func (e *Expected) Describe(d decide.Difference) string {
	if name := nameOf(d.Call.Number()); name != "" && d.Call.Arch() == ownArch {
		return name + ", " + d.String()
	}
	return d.String()
}

// declaredOf reads the rules of spec, of whose names numbers are known.
func declaredOf(spec *specs.LinuxSeccomp, numbers map[string]uint32) (*decide.Declared, error) {
	if len(spec.Architectures) != 1 || spec.Architectures[0] != arches[Options{}.arch()] {
		return nil, fmt.Errorf("architectures %v are not this one alone", spec.Architectures)
	}
	if len(numbers) == 0 {
		return nil, errors.New("no call is named")
	}
	rules := map[uint32][]decide.Rule{}
	for _, call := range spec.Syscalls {
		rule := decide.Rule{Then: decide.Allow}
		if call.Action == specs.ActErrno {
			rule.Then = decide.Refuse(uint32(*call.ErrnoRet))
		}
		for _, a := range call.Args {
			rule.When = append(rule.When, decide.Condition{Arg: int(a.Index), Mask: a.Value, Bits: a.ValueTwo})
		}
		for _, name := range call.Names {
			if number, known := numbers[name]; known {
				rules[number] = append(rules[number], rule)
			}
		}
	}
	return decide.NewDeclared(ownArch, decide.Refuse(uint32(*spec.DefaultErrnoRet)), rules), nil
}
