package seccomp

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Spec renders p as the OCI runtime's filter. It is pure: the same p and o give the
// same bytes on every host of one architecture.
func (p Profile) Spec(o Options) (*specs.LinuxSeccomp, error) {
	if err := p.check(o); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Seccomp, "seccomp.spec", err)
	}
	errno := uint(refusal)
	out := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &errno,
		Architectures:   []specs.Arch{arches[o.arch()]},
		// TSYNC changes nothing in runc. It is named because runc takes an absent
		// list for SPEC_ALLOW, which would undo a host's spec_store_bypass_disable=seccomp.
		Flags: []specs.LinuxSeccompFlag{"SECCOMP_FILTER_FLAG_TSYNC"},
	}
	for _, r := range p.Active(o) {
		out.Syscalls = append(out.Syscalls, r.spec()...)
	}
	return out, nil
}

// spec renders r, one entry for each of its terms.
func (r Rule) spec() []specs.LinuxSyscall {
	entry := specs.LinuxSyscall{Names: r.Syscalls, Action: specs.ActAllow}
	if !r.Allow {
		errno := uint(r.Errno)
		entry.Action, entry.ErrnoRet = specs.ActErrno, &errno
	}
	var out []specs.LinuxSyscall
	for _, t := range r.terms() {
		entry.Args = t.spec()
		out = append(out, entry)
	}
	return out
}

// spec renders t. For a masked comparison the OCI form has the mask in Value and
// what the rest must equal in ValueTwo.
func (t term) spec() []specs.LinuxSeccompArg {
	var out []specs.LinuxSeccompArg
	for _, c := range t {
		out = append(out, specs.LinuxSeccompArg{
			Index: c.index, Op: specs.OpMaskedEqual, Value: c.mask, ValueTwo: c.bits,
		})
	}
	return out
}
