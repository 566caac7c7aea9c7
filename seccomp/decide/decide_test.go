package decide

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
)

const arm64 = 0xc00000b7

func parse(t testing.TB, code ...bpf.Instruction) *Program {
	t.Helper()
	raw, err := bpf.Assemble(code)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(bytesOf(t, raw))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func bytesOf(t testing.TB, raw []bpf.RawInstruction) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := binary.Write(&out, binary.NativeEndian, raw); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// randomCode is a program of all operations but negation, which the other machine lacks,
// of small numbers, so that comparisons hold
// now and then.
func randomCode(r *rand.Rand) []bpf.Instruction {
	const length = 24
	small := func() uint32 { return [...]uint32{0, 1, 2, 3, 31, 0x40000000, 0x80000000, 0xffffffff}[r.IntN(8)] }
	reg := func() bpf.Register { return bpf.Register(r.IntN(2)) }
	var code []bpf.Instruction
	for left := length - 1; left > 0; left-- {
		skip := func() uint8 { return uint8(r.IntN(min(left, 6))) }
		cond := [...]bpf.JumpTest{bpf.JumpEqual, bpf.JumpGreaterThan, bpf.JumpGreaterOrEqual, bpf.JumpBitsSet}[r.IntN(4)]
		op := [...]bpf.ALUOp{bpf.ALUOpAdd, bpf.ALUOpSub, bpf.ALUOpMul, bpf.ALUOpOr, bpf.ALUOpAnd, bpf.ALUOpXor, bpf.ALUOpAnd}[r.IntN(7)]
		code = append(code, [...]bpf.Instruction{
			bpf.LoadAbsolute{Off: 4 * uint32(r.IntN(words)), Size: 4},
			bpf.LoadAbsolute{Off: 4 * uint32(r.IntN(2)), Size: 4},
			bpf.LoadConstant{Dst: reg(), Val: small()},
			bpf.LoadScratch{Dst: reg(), N: r.IntN(slots)},
			bpf.StoreScratch{Src: reg(), N: r.IntN(slots)},
			bpf.ALUOpConstant{Op: op, Val: small()},
			bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: uint32(r.IntN(32))},
			bpf.ALUOpConstant{Op: bpf.ALUOpDiv, Val: 1 + uint32(r.IntN(9))},
			bpf.ALUOpX{Op: op},
			bpf.TAX{}, bpf.TXA{},
			bpf.Jump{Skip: uint32(skip())},
			bpf.JumpIf{Cond: cond, Val: small(), SkipTrue: skip(), SkipFalse: skip()},
			bpf.JumpIfX{Cond: cond, SkipTrue: skip(), SkipFalse: skip()},
			bpf.RetConstant{Val: r.Uint32()},
		}[r.IntN(15)])
	}
	return append(code, bpf.RetA{})
}

func randomCall(r *rand.Rand) Call {
	values := [...]uint32{0, 1, 2, 3, 31, 0x40000000, 0x80000000, 0xffffffff, r.Uint32()}
	c := CallOf(0, 0, [6]uint64{})
	for i := range c.bits {
		c.bits[i] = values[r.IntN(len(values))]
	}
	return c
}

// ask runs code on a call by another machine, which reads words in network order.
func ask(t *testing.T, code []bpf.Instruction, c Call) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(code)
	if err != nil {
		t.Fatal(err)
	}
	var data [dataBytes]byte
	for i, v := range c.bits {
		binary.BigEndian.PutUint32(data[4*i:], v)
	}
	out, err := vm.Run(data[:])
	if err != nil {
		t.Fatal(err)
	}
	return uint32(out)
}

// A machine decides as another implementation of BPF does. And what it decides about a
// call of which it knows a part, it decides about every such call.
func TestDecidesAsBPFDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	early := 0
	for range 3000 {
		code := randomCode(r)
		p := parse(t, code...)
		for range 10 {
			full := randomCall(r)
			want := ask(t, code, full)
			if got, missing := p.Decide(full); got != want || missing.missing {
				t.Fatalf("%v: %#x %v, want %#x\n%v", full, got, missing, want, code)
			}
			part := Call{}
			for {
				got, missing := p.Decide(part)
				if !missing.missing {
					if got != want {
						t.Fatalf("%v of %v: %#x, want %#x\n%v", part, full, got, want, code)
					}
					break
				}
				if part.known[missing.word]&(1<<missing.place) != 0 {
					t.Fatalf("a known bit is asked for: %v\n%v", missing, code)
				}
				part = part.with(missing, full.bits[missing.word]&(1<<missing.place) != 0)
			}
			if part.known != full.known {
				early++
			}
		}
	}
	if early < 1000 {
		t.Errorf("only %d calls were decided without all of their bits", early)
	}
}

func TestNegate(t *testing.T) {
	p := parse(t, bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.NegateA{}, bpf.RetA{})
	if got, missing := p.Decide(CallOf(0, 5, [6]uint64{})); got != 0xfffffffb || missing.missing {
		t.Errorf("-5 is %#x", got)
	}
}

func TestParseRefuses(t *testing.T) {
	ret := bpf.RawInstruction{Op: returnConst}
	for name, raw := range map[string][]bpf.RawInstruction{
		"no end":                  {{Op: loadConst}},
		"nothing":                 {},
		"a byte of a call":        {{Op: 0x30}, ret},
		"an odd place":            {{Op: loadWord, K: 2}, ret},
		"behind the call":         {{Op: loadWord, K: 64}, ret},
		"behind the memory":       {{Op: storeA, K: 16}, ret},
		"a jump out":              {{Op: jump, K: 1}, ret},
		"a far jump":              {{Op: jump, K: 0xffffffff}, ret},
		"a branch out":            {{Op: jumpIf | ifEqual, Jt: 1}, ret},
		"the other branch out":    {{Op: jumpIf | ifEqual, Jf: 1}, ret},
		"division by 0":           {{Op: compute | opDivide}, ret},
		"division by X":           {{Op: compute | opDivide | withX}, ret},
		"a remainder":             {{Op: compute | 0x90, K: 1}, ret},
		"the header of a packet":  {{Op: 0xb1}, ret},
		"too many":                make([]bpf.RawInstruction, most+1),
		"what is no return value": {{Op: 0x0e}, ret},
	} {
		if p, err := Parse(bytesOf(t, raw)); err == nil {
			t.Errorf("%s: %v", name, p)
		}
	}
	if _, err := Parse(make([]byte, 9)); err == nil {
		t.Error("half an instruction is read")
	}
}

// TestStack: the strictest of several decisions counts, and of equally strict ones that of
// the latest filter.
func TestStack(t *testing.T) {
	ret := func(v uint32) *Program { return parse(t, bpf.RetConstant{Val: v}) }
	for _, tt := range []struct {
		stack Stack
		want  uint32
	}{
		{nil, Allow},
		{Stack{ret(Allow), ret(Refuse(1))}, Refuse(1)},
		{Stack{ret(Refuse(1)), ret(Allow)}, Refuse(1)},
		{Stack{ret(Refuse(1)), ret(Refuse(2))}, Refuse(2)},
		{Stack{ret(Refuse(1)), ret(trap)}, trap},
		{Stack{ret(killThread), ret(trap)}, killThread},
		{Stack{ret(killThread), ret(killProcess)}, killProcess},
		{Stack{ret(killProcess), ret(killThread)}, killProcess},
		{Stack{ret(logged), ret(trace), ret(notify)}, notify},
	} {
		if got, missing := tt.stack.Decide(Call{}); got != tt.want || missing.missing {
			t.Errorf("%v: %s, want %s", tt.stack, Action(got), Action(tt.want))
		}
	}
}

// declared is a small filter: call 1 is allowed, call 2 for two values of a masked
// argument, and with another error for a value of 64 bits.
func declared(arch uint32) *Declared {
	return NewDeclared(arch, Refuse(1), map[uint32][]Rule{
		1: {{Then: Allow}},
		2: {
			{When: []Condition{{Arg: 0, Mask: 0xf, Bits: 3}, {Arg: 5, Mask: 1 << 40, Bits: 0}}, Then: Allow},
			{When: []Condition{{Arg: 0, Mask: 0xf, Bits: 4}}, Then: Allow},
			{When: []Condition{{Arg: 1, Mask: ^uint64(0), Bits: 1<<63 | 5}}, Then: Refuse(22)},
		},
	})
}

func TestDeclared(t *testing.T) {
	d := declared(archX86)
	runc := Newer{Decider: d, Arch: archX86, Last: 2, Then: Refuse(38)}
	for _, tt := range []struct {
		arch, number uint32
		args         [6]uint64
		want, newer  uint32
	}{
		{archX86, 1, [6]uint64{9, 9, 9, 9, 9, 9}, Allow, Allow},
		{archX86, 0, [6]uint64{}, Refuse(1), Refuse(1)},
		{archX86, 2, [6]uint64{}, Refuse(1), Refuse(1)},
		{archX86, 2, [6]uint64{0xf3}, Allow, Allow},
		{archX86, 2, [6]uint64{3, 0, 0, 0, 0, 1 << 40}, Refuse(1), Refuse(1)},
		{archX86, 2, [6]uint64{0xffff_ffff_0000_0004, 1<<63 | 5}, Allow, Allow},
		{archX86, 2, [6]uint64{0, 1<<63 | 5}, Refuse(22), Refuse(22)},
		{archX86, 2, [6]uint64{0, 5}, Refuse(1), Refuse(1)},
		{archX86, 3, [6]uint64{}, Refuse(1), Refuse(38)},
		{archX86, x32Bit - 1, [6]uint64{}, Refuse(1), Refuse(38)},
		{archX86, x32Bit | 1, [6]uint64{}, Kill, Kill},
		{archX86, 0x80000001, [6]uint64{}, Kill, Refuse(38)},
		{archX86, 0xfffffffe, [6]uint64{}, Kill, Kill},
		{archX86, 0xffffffff, [6]uint64{}, Refuse(1), Refuse(1)},
		{arm64, 1, [6]uint64{}, Kill, Kill},
		{0x40000003, 1, [6]uint64{}, Kill, Kill},
		{0, 0, [6]uint64{}, Kill, Kill},
	} {
		call := CallOf(tt.arch, tt.number, tt.args)
		if got, missing := d.Decide(call); got != tt.want || missing.missing {
			t.Errorf("%v: %s, want %s", call, Action(got), Action(tt.want))
		}
		if got, missing := runc.Decide(call); got != tt.newer || missing.missing {
			t.Errorf("with runc's check, %v: %s, want %s", call, Action(got), Action(tt.newer))
		}
	}
	arm := Newer{Decider: declared(arm64), Arch: arm64, Last: 2, Then: Refuse(38)}
	if got, _ := arm.Decide(CallOf(arm64, x32Bit|1, [6]uint64{})); got != Refuse(38) {
		t.Errorf("a number with the bit of x32 where there is none: %s", Action(got))
	}
}

func TestCompare(t *testing.T) {
	if d, err := Compare(declared(archX86), declared(archX86)); d != nil || err != nil {
		t.Errorf("a filter differs from itself: %v, %v", d, err)
	}
	d, err := Compare(declared(archX86), declared(arm64))
	if err != nil || d == nil {
		t.Errorf("filters of two architectures are the same: %v, %v", d, err)
	}
	// Data that the kernel ignores is no difference; an error is.
	same := [2]*Program{parse(t, bpf.RetConstant{Val: allow | 7}), parse(t, bpf.RetConstant{Val: allow})}
	if d, err := Compare(same[0], same[1]); d != nil || err != nil {
		t.Errorf("ignored data differs: %v, %v", d, err)
	}
	if d, err := Compare(same[1], parse(t, bpf.RetConstant{Val: Refuse(5)})); err != nil || d == nil || !strings.Contains(d.String(), "error 5, declared allow") {
		t.Errorf("an error is as good as to allow: %v, %v", d, err)
	}
	// A program by which each of too many calls gets a decision of its own.
	hard := parse(t, bpf.LoadAbsolute{Off: 16, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpOr, Val: allow}, bpf.RetA{})
	wide := parse(t, bpf.LoadAbsolute{Off: 16, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: 0}, bpf.ALUOpConstant{Op: bpf.ALUOpOr, Val: allow}, bpf.RetA{})
	for _, p := range []*Program{hard, wide} {
		if d, err := Compare(same[1], p); err == nil && d == nil {
			t.Errorf("what cannot be compared is as declared: %v", d)
		}
	}
}
