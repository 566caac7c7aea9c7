package seccomp

import "math/bits"

// cube is the set of values whose bits under mask are bits. All comparisons of a
// filter are made of cubes.
type cube struct{ mask, bits uint64 }

// meets reports whether some value is in both a and b.
func (a cube) meets(b cube) bool { return (a.bits^b.bits)&a.mask&b.mask == 0 }

// cubes returns disjoint cubes that together hold exactly the values for which a is
// true. Few of them matter: each becomes a rule that libseccomp takes about 25 µs to
// add whenever a sandbox is made.
func (a Arg) cubes() []cube {
	if a.Not {
		return cover(a)
	}
	out := make([]cube, len(a.Values))
	for i, v := range a.Values {
		out[i] = cube{a.Mask, v.Bits}
	}
	return merge(out)
}

// merge joins cubes that differ in one bit until none are left that do: AF_INET and
// AF_INET6, 2 and 10, become one comparison that ignores the bit of value 8.
func merge(cubes []cube) []cube {
	for i := 0; i < len(cubes); i++ {
		for j := i + 1; j < len(cubes); j++ {
			a, b := cubes[i], cubes[j]
			if a.mask != b.mask || bits.OnesCount64(a.bits^b.bits) != 1 {
				continue
			}
			free := a.bits ^ b.bits
			cubes[i] = cube{a.mask &^ free, a.bits &^ free}
			cubes = append(cubes[:j], cubes[j+1:]...)
			i, j = -1, len(cubes) // begin anew: the joined one may join again
		}
	}
	return cubes
}

// cover returns the cubes that hold every value under a's mask and bound but a's
// values. It walks down the bits from the highest: the side of a bit on which no
// excluded value lies is one cube, the other side is walked further. The result has
// at most len(a.Values) cubes per bit.
func cover(a Arg) []cube {
	values := make([]uint64, len(a.Values))
	for i, v := range a.Values {
		values[i] = v.Bits
	}
	open, at := a.Mask, cube{}
	if a.Under != 0 {
		open = a.Under - 1
		at.mask = a.Mask &^ open
	}
	return walk(open, at, values)
}

// walk covers the part of at, whose bits under open are not yet decided, without
// the excluded values, all of which lie in it.
func walk(open uint64, at cube, exclude []uint64) []cube {
	if len(exclude) == 0 {
		return []cube{at}
	}
	if open == 0 {
		return nil // at is the excluded value itself
	}
	bit := uint64(1) << (bits.Len64(open) - 1)
	var zeros, ones []uint64
	for _, v := range exclude {
		if v&bit == 0 {
			zeros = append(zeros, v)
		} else {
			ones = append(ones, v)
		}
	}
	at.mask |= bit
	out := walk(open&^bit, at, zeros)
	at.bits |= bit
	return append(out, walk(open&^bit, at, ones)...)
}

// term is a conjunction of cubes on different arguments: one rule of libseccomp.
type term []indexed

type indexed struct {
	index uint
	cube
}

// terms multiplies r's conditions out. An unconditional rule is one empty term.
func (r Rule) terms() []term {
	out := []term{{}}
	for _, a := range r.Args {
		var next []term
		for _, t := range out {
			for _, c := range a.cubes() {
				next = append(next, append(t[:len(t):len(t)], indexed{a.Index, c}))
			}
		}
		out = next
	}
	return out
}

// meets reports whether some arguments satisfy both t and u.
func (t term) meets(u term) bool {
	for _, a := range t {
		for _, b := range u {
			if a.index == b.index && !a.cube.meets(b.cube) {
				return false
			}
		}
	}
	return true
}
