package decide

// Declared is a filter as it was declared: conditions on the calls of one architecture.
type Declared struct {
	arch, otherwise, last uint32
	rules                 map[uint32][]Rule
}

// NewDeclared makes a filter for arch (AUDIT_ARCH_…) of rules by the number of the call.
// Calls without a rule that holds get otherwise.
func NewDeclared(arch, otherwise uint32, rules map[uint32][]Rule) *Declared {
	d := &Declared{arch: arch, otherwise: otherwise, rules: rules}
	for number := range rules {
		d.last = max(d.last, number)
	}
	return d
}

// Rule decides a call if all its conditions hold. Of two that do, the first counts.
type Rule struct {
	When []Condition
	Then uint32
}

// Condition holds if the bits of an argument under Mask are Bits.
type Condition struct {
	Arg        int
	Mask, Bits uint64
}

// archX86 has two tables: the numbers of x32 have x32Bit. libseccomp kills those that
// are not in the filter, but for -1, by which tracers leave out a call.
const (
	archX86 = 0xc000003e
	x32Bit  = 0x40000000
	noCall  = 0xffffffff
)

// Decide treats other architectures as libseccomp does by default: they are killed.
func (d *Declared) Decide(c Call) (uint32, Bit) {
	if same, missing := c.word(wordArch).equal(d.arch); missing.missing || !same {
		return Kill, missing
	}
	if ret, decided, missing := d.odd(&c); missing.missing || decided {
		return ret, missing
	}
	for _, r := range d.rules[c.Number()] {
		holds, missing := r.holds(&c)
		if missing.missing || holds {
			return r.Then, missing
		}
	}
	return d.otherwise, Bit{}
}

// odd decides numbers that no rule is about. Of those that are left, all is known.
func (d *Declared) odd(c *Call) (ret uint32, decided bool, missing Bit) {
	number := c.word(wordCall)
	if d.arch == archX86 {
		foreign, missing := number.atLeast(x32Bit)
		if missing.missing {
			return 0, false, missing
		}
		if foreign {
			none, missing := number.equal(noCall)
			if none {
				return d.otherwise, true, missing
			}
			return Kill, true, missing
		}
	}
	beyond, missing := number.above(d.last)
	switch {
	case missing.missing:
		return 0, false, missing
	case beyond:
		return d.otherwise, true, Bit{}
	case !number.whole():
		return 0, false, number.highest(^uint32(0))
	}
	return 0, false, Bit{}
}

func (r Rule) holds(c *Call) (bool, Bit) {
	for _, w := range r.When {
		for half := range 2 {
			v := c.word(uint8(firstArg + 2*w.Arg + half))
			mask := uint32(w.Mask >> (32 * half))
			v.known |= ^mask
			v.bits &= mask
			if holds, missing := v.equal(uint32(w.Bits >> (32 * half))); missing.missing || !holds {
				return false, missing
			}
		}
	}
	return true, Bit{}
}

// Newer is a filter with the check that runc puts in front: numbers above Last get an
// error, so that programs that try a call newer than the filter fall back. Numbers of x32
// are left to the filter, as in runc, where the architecture has them
// (libcontainer/seccomp/patchbpf).
type Newer struct {
	Decider
	Arch, Last uint32
	Then       uint32
}

// Decide asks the filter only about what is not newer.
func (n Newer) Decide(c Call) (uint32, Bit) {
	own, missing := c.word(wordArch).equal(n.Arch)
	if missing.missing {
		return 0, missing
	}
	if own && n.Arch == archX86 {
		x32, missing := c.word(wordCall).meets(x32Bit)
		if missing.missing {
			return 0, missing
		}
		own = !x32
	}
	if own {
		newer, missing := c.word(wordCall).above(n.Last)
		if missing.missing || newer {
			return n.Then, missing
		}
	}
	return n.Decider.Decide(c)
}
