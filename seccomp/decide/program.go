package decide

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// instruction is struct sock_filter (linux/filter.h).
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// size is that of an instruction, most the number that the kernel takes (BPF_MAXINSNS).
const (
	size = 8
	most = 4096
)

// Program is one classic BPF program for seccomp.
type Program struct{ code []instruction }

// Parse reads a program as the kernel has it, in the byte order of the host. What the
// kernel would refuse is an error (kernel/seccomp.c, seccomp_check_filter).
func Parse(raw []byte) (*Program, error) {
	if len(raw) == 0 || len(raw)%size != 0 || len(raw) > most*size {
		return nil, fmt.Errorf("a program of %d bytes is none", len(raw))
	}
	p := &Program{code: make([]instruction, len(raw)/size)}
	for i := range p.code {
		b := raw[i*size:]
		p.code[i] = instruction{binary.NativeEndian.Uint16(b), b[2], b[3], binary.NativeEndian.Uint32(b[4:])}
		if err := p.code[i].check(len(p.code) - 1 - i); err != nil {
			return nil, fmt.Errorf("instruction %d: %w", i, err)
		}
	}
	if p.code[len(p.code)-1].code&classMask != classReturn {
		return nil, errors.New("the program does not end by returning")
	}
	return p, nil
}

// check refuses an instruction with left others behind it.
func (i instruction) check(left int) error {
	switch op := i.code; {
	case op == loadWord && (i.k%4 != 0 || i.k >= dataBytes):
		return fmt.Errorf("it reads byte %d of a call", i.k)
	case slotted(op) && i.k >= slots:
		return fmt.Errorf("it uses memory %d", i.k)
	case op == jump && uint64(i.k) >= uint64(left):
		return errors.New("it jumps out of the program")
	case op&classMask == classJump && op != jump && max(int(i.jt), int(i.jf)) >= left:
		return errors.New("it jumps out of the program")
	case op == compute|opDivide && i.k == 0:
		return errors.New("it divides by 0")
	case !known(op):
		return fmt.Errorf("operation %#x is not known", op)
	}
	return nil
}

// The operations of seccomp programs (linux/bpf_common.h).
const (
	classMask   = 0x07
	classJump   = 0x05
	classReturn = 0x06

	loadWord    = 0x20 // A = word k of the call
	loadLength  = 0x80 // A = size of the call
	loadConst   = 0x00 // A = k
	loadSlot    = 0x60 // A = memory k
	loadXLength = 0x81
	loadXConst  = 0x01
	loadXSlot   = 0x61
	storeA      = 0x02 // memory k = A
	storeX      = 0x03
	moveToX     = 0x07 // X = A
	moveToA     = 0x87
	returnConst = 0x06
	returnA     = 0x16

	withX   = 0x08 // added to an operation: X instead of k
	compute = 0x04 // A = A op k
	jump    = 0x05
	jumpIf  = 0x05 // with one of these
	ifEqual = 0x10
	ifAbove = 0x20
	ifLeast = 0x30
	ifMeets = 0x40

	opAdd      = 0x00
	opSubtract = 0x10
	opMultiply = 0x20
	opDivide   = 0x30
	opOr       = 0x40
	opAnd      = 0x50
	opLeft     = 0x60
	opRight    = 0x70
	opNegate   = 0x80
	opXor      = 0xa0

	slots = 16
)

func slotted(op uint16) bool {
	return op == loadSlot || op == loadXSlot || op == storeA || op == storeX
}

// known reports whether op is one that a machine can run: all that the kernel takes but
// division by X, which ends the program where X is 0.
func known(op uint16) bool {
	switch op {
	case compute | opDivide, loadWord, loadLength, loadConst, loadSlot, loadXLength, loadXConst, loadXSlot, storeA, storeX,
		moveToX, moveToA, returnConst, returnA, jump, compute | opNegate:
		return true
	}
	switch op &^ withX {
	case compute | opAdd, compute | opSubtract, compute | opMultiply, compute | opOr, compute | opAnd,
		compute | opLeft, compute | opRight, compute | opXor,
		jumpIf | ifEqual, jumpIf | ifAbove, jumpIf | ifLeast, jumpIf | ifMeets:
		return true
	}
	return false
}
