package seccomp

import (
	"errors"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The return values of filters (linux/seccomp.h).
const (
	returnKill  = 0x80000000 // the process
	returnErrno = 0x00050000 // with the error in the low half
	returnAllow = 0x7fff0000
)

// Offsets in struct seccomp_data of a little-endian host, in bytes.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // 8 for each, the lower half first
)

// x32 is the bit of the numbers of amd64's third table.
const x32 = 0x40000000

// Assemble renders p for this process's own architecture without libseccomp,
// for a program that puts a filter on itself and is built without cgo. It has
// the meaning of Spec, as a straight line: a small filter needs no tree, and the kernel
// caches answers that depend on the number alone.
func (p Profile) Assemble() ([]bpf.RawInstruction, error) {
	const op = "seccomp.assemble"
	if err := p.check(Options{}); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Seccomp, op, err)
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ownArch, SkipTrue: 1},
		bpf.RetConstant{Val: returnKill},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		bpf.RetConstant{Val: returnKill},
	}
	names, rules := byName(p.Active(Options{}))
	for _, name := range names {
		block, err := assembleCall(name, rules[name])
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.Seccomp, op, err)
		}
		program = append(program, block...)
	}
	program = append(program, bpf.RetConstant{Val: returnErrno | uint32(refusal)})
	raw, err := bpf.Assemble(program)
	if err == nil && len(raw) > unix.BPF_MAXINSNS {
		err = fmt.Errorf("%d instructions are more than the kernel takes", len(raw))
	}
	return raw, sbxerr.Wrap(sbxerr.Seccomp, op, err)
}

// byName gathers the rules about each call, in the order of the first.
func byName(rules []Rule) (names []string, about map[string][]Rule) {
	about = map[string][]Rule{}
	for _, r := range rules {
		for _, name := range r.Syscalls {
			if about[name] == nil {
				names = append(names, name)
			}
			about[name] = append(about[name], r)
		}
	}
	return names, about
}

// assembleCall decides one call for good: its last instruction refuses.
func assembleCall(name string, rules []Rule) ([]bpf.Instruction, error) {
	number, known := numbers[name]
	if !known {
		return nil, fmt.Errorf("system call %q has no number: give it one", name)
	}
	var body []bpf.Instruction
	for _, r := range rules {
		for _, t := range r.terms() {
			body = append(body, t.assemble(r.answer())...)
		}
	}
	if len(rules[0].Args) > 0 {
		body = append(body, bpf.RetConstant{Val: returnErrno | uint32(refusal)})
	}
	const furthest = 255
	if len(body) > furthest {
		return nil, errors.New("the conditions of " + name + " are too many to jump over")
	}
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: uint8(len(body))}}, body...), nil
}

// answer returns the filter's return value if r matches.
func (r Rule) answer() uint32 {
	if r.Allow {
		return returnAllow
	}
	return returnErrno | uint32(r.Errno)
}

// assemble returns answer if all of t hold, and goes on behind itself if not.
func (t term) assemble(answer uint32) []bpf.Instruction {
	out := []bpf.Instruction{bpf.RetConstant{Val: answer}}
	for _, c := range t {
		for half := range uint32(2) {
			mask, want := uint32(c.mask>>(32*half)), uint32(c.bits>>(32*half))
			if mask == 0 {
				continue
			}
			out = append([]bpf.Instruction{
				bpf.LoadAbsolute{Off: offArgs + 8*uint32(c.index) + 4*half, Size: 4},
				bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: want, SkipFalse: uint8(len(out))},
			}, out...)
		}
	}
	return out
}
