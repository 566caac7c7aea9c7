package decide

import (
	"fmt"
	"math/bits"
	"strings"
)

// words is the size of struct seccomp_data in words of 32 bits: number, architecture,
// instruction pointer, and from firstArg on six arguments, the lower half first.
const (
	words     = 16
	wordCall  = 0
	wordArch  = 1
	firstArg  = 4
	dataBytes = 4 * words
)

// Call is what is known of a call. The zero Call is any call at all.
type Call struct {
	known [words]uint32 // which bits of a word are known
	bits  [words]uint32 // their values; 0 where they are not known
}

// CallOf is a call of which everything is known.
func CallOf(arch, number uint32, args [6]uint64) Call {
	var c Call
	for i := range c.known {
		c.known[i] = ^uint32(0)
	}
	c.bits[wordCall], c.bits[wordArch] = number, arch
	for i, a := range args {
		c.bits[firstArg+2*i], c.bits[firstArg+2*i+1] = uint32(a), uint32(a>>32)
	}
	return c
}

// Arch returns the architecture. Its unknown bits are 0, as in all that follows.
func (c Call) Arch() uint32 { return c.bits[wordArch] }

// Number returns the number of the call.
func (c Call) Number() uint32 { return c.bits[wordCall] }

// Arg returns an argument.
func (c Call) Arg(i int) uint64 {
	return uint64(c.bits[firstArg+2*i+1])<<32 | uint64(c.bits[firstArg+2*i])
}

// String shows the call with its known arguments.
func (c Call) String() string {
	var args []string
	for i := range 6 {
		if c.known[firstArg+2*i]|c.known[firstArg+2*i+1] != 0 {
			args = append(args, fmt.Sprintf("argument %d = %#x", i, c.Arg(i)))
		}
	}
	out := fmt.Sprintf("call %#x of architecture %#x", c.Number(), c.Arch())
	if len(args) > 0 {
		out += " with " + strings.Join(args, ", ")
	}
	return out
}

// with returns c with one more known bit.
func (c Call) with(b Bit, set bool) Call {
	c.known[b.word] |= 1 << b.place
	if set {
		c.bits[b.word] |= 1 << b.place
	}
	return c
}

// Bit names a bit of a call. The zero Bit is none: nothing is missing.
type Bit struct {
	word, place uint8
	missing     bool
}

// value is a word in a register. A bit of it is known, or it is the same bit of a word of
// the call.
type value struct {
	known, bits uint32
	from        uint8
}

func constant(k uint32) value { return value{known: ^uint32(0), bits: k} }

func (c *Call) word(i uint8) value { return value{c.known[i], c.bits[i], i} }

func (v value) whole() bool { return v.known == ^uint32(0) }

// highest names the highest unknown bit of v among those of mask, of which there must be
// one.
func (v value) highest(mask uint32) Bit {
	return Bit{v.from, uint8(bits.Len32(mask&^v.known) - 1), true}
}

// equal compares v with k, or names the bit that it takes.
func (v value) equal(k uint32) (bool, Bit) {
	switch {
	case (v.bits^k)&v.known != 0:
		return false, Bit{}
	case v.whole():
		return true, Bit{}
	}
	return false, v.highest(^uint32(0))
}

// above reports whether v is greater than k.
func (v value) above(k uint32) (bool, Bit) {
	switch {
	case v.bits > k: // already without the unknown bits
		return true, Bit{}
	case v.bits|^v.known <= k: // even with all of them
		return false, Bit{}
	}
	return false, v.highest(^uint32(0))
}

// atLeast reports whether v is k or greater.
func (v value) atLeast(k uint32) (bool, Bit) {
	if k == 0 {
		return true, Bit{}
	}
	return v.above(k - 1)
}

// meets reports whether v and k have a bit in common.
func (v value) meets(k uint32) (bool, Bit) {
	switch {
	case v.bits&k != 0:
		return true, Bit{}
	case k&^v.known == 0:
		return false, Bit{}
	}
	return false, v.highest(k)
}
