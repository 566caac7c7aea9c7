package pool

import "time"

// quietTime is how long a pool that grew is not missed before it shrinks.
const quietTime = time.Minute

// demand decides how many sandboxes a pool keeps ready: its size, and more up to
// max when requests find it empty. It is a value; each event gives the next one.
type demand struct {
	size, max int
	want      int       // at the moment, from size to max
	full      bool      // there were so many ready since want last changed
	missed    time.Time // when a request last found none
}

func newDemand(size, most int) demand { return demand{size: size, max: max(size, most), want: size} }

// warmTime is how long the last sandbox of a pool without a size waits for its request.
const warmTime = 5 * time.Minute

// miss doubles the number, once for all misses until so many were ready: a
// bigger pool helps against bursts, not against a filler that cannot keep up.
func (d demand) miss(at time.Time) demand {
	d.missed = at
	if d.full || d.want == 0 {
		d.want, d.full = min(d.max, max(1, 2*d.want)), false
	}
	return d
}

// ready notes how many wait.
func (d demand) ready(n int) demand {
	d.full = d.full || n >= d.want
	return d
}

// rest halves the number after each quiet time, down to the size. One stays for warmTime
// after a request asked for it.
func (d demand) rest(at, asked time.Time) demand {
	least := d.size
	if at.Sub(asked) < warmTime {
		least = max(least, 1)
	}
	if d.want > least && at.Sub(d.missed) >= quietTime {
		d.want, d.missed = max(least, d.want/2), at
	}
	return d
}

// goal is how many are to be ready where there is room for free, of all that may live.
// What is above the size leaves a quarter to requests, and at least one.
func (d demand) goal(free, all int) int {
	return max(d.size, min(d.want, free-max(1, all/4)))
}
