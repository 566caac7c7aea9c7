package decide

// machine is the state of a run.
type machine struct {
	call *Call
	a, x value
	mem  [slots]value
}

// Decide returns what p returns for c, or the bit of c without which it cannot be told.
// Parse has checked p: every run ends, since jumps only lead forward.
func (p *Program) Decide(c Call) (uint32, Bit) {
	m := machine{call: &c, a: constant(0), x: constant(0)}
	for i := range m.mem {
		m.mem[i] = constant(0)
	}
	for at := 0; ; at++ {
		in := &p.code[at]
		var skip int
		var missing Bit
		switch in.code & classMask {
		case classReturn:
			return m.result(in)
		case classJump:
			skip, missing = m.jump(in)
		case compute:
			missing = m.compute(in)
		default:
			m.move(in)
		}
		if missing.missing {
			return 0, missing
		}
		at += skip
	}
}

func (m *machine) result(in *instruction) (uint32, Bit) {
	if in.code == returnConst {
		return in.k, Bit{}
	}
	if !m.a.whole() {
		return 0, m.a.highest(^uint32(0))
	}
	return m.a.bits, Bit{}
}

// operand is k or X, which must be known.
func (m *machine) operand(in *instruction) (uint32, Bit) {
	switch {
	case in.code&withX == 0:
		return in.k, Bit{}
	case m.x.whole():
		return m.x.bits, Bit{}
	}
	return 0, m.x.highest(^uint32(0))
}

// jump returns how many instructions to pass over.
func (m *machine) jump(in *instruction) (int, Bit) {
	if in.code == jump {
		return int(in.k), Bit{}
	}
	k, missing := m.operand(in)
	if missing.missing {
		return 0, missing
	}
	var holds bool
	switch in.code &^ withX {
	case jumpIf | ifEqual:
		holds, missing = m.a.equal(k)
	case jumpIf | ifAbove:
		holds, missing = m.a.above(k)
	case jumpIf | ifLeast:
		holds, missing = m.a.atLeast(k)
	case jumpIf | ifMeets:
		holds, missing = m.a.meets(k)
	}
	if holds {
		return int(in.jt), missing
	}
	return int(in.jf), missing
}

// compute changes A. A mask leaves unknown bits as they are; all else needs every bit.
func (m *machine) compute(in *instruction) Bit {
	k, missing := m.operand(in)
	op := in.code &^ (compute | withX)
	if op == opNegate {
		k, missing = 0, Bit{}
	}
	switch {
	case missing.missing:
		return missing
	case op == opAnd:
		m.a.known |= ^k
		m.a.bits &= k
		return Bit{}
	case op == opOr:
		m.a.known |= k
		m.a.bits |= k
		return Bit{}
	case !m.a.whole():
		return m.a.highest(^uint32(0))
	}
	m.a = constant(arithmetic(op, m.a.bits, k))
	return Bit{}
}

func arithmetic(op uint16, a, k uint32) uint32 {
	switch op {
	case opAdd:
		return a + k
	case opSubtract:
		return a - k
	case opMultiply:
		return a * k
	case opDivide:
		return a / k // known and Parse refuse what could be 0
	case opLeft:
		return a << (k & 31)
	case opRight:
		return a >> (k & 31)
	case opXor:
		return a ^ k
	}
	return -a // the one that is left
}

func (m *machine) move(in *instruction) {
	switch in.code {
	case loadWord:
		m.a = m.call.word(uint8(in.k / 4))
	case loadLength:
		m.a = constant(dataBytes)
	case loadConst:
		m.a = constant(in.k)
	case loadSlot:
		m.a = m.mem[in.k]
	case loadXLength:
		m.x = constant(dataBytes)
	case loadXConst:
		m.x = constant(in.k)
	case loadXSlot:
		m.x = m.mem[in.k]
	case storeA:
		m.mem[in.k] = m.a
	case storeX:
		m.mem[in.k] = m.x
	case moveToX:
		m.x = m.a
	case moveToA:
		m.a = m.x
	}
}
