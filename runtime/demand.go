package runtime

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

// miss doubles the number, once for all misses until so many were ready: a
// bigger pool helps against bursts, not against a filler that cannot keep up.
func (d demand) miss(at time.Time) demand {
	d.missed = at
	if d.full {
		d.want, d.full = min(d.max, 2*d.want), false
	}
	return d
}

// ready notes how many wait.
func (d demand) ready(n int) demand {
	d.full = d.full || n >= d.want
	return d
}

// rest halves the number, down to the size, after each quiet time.
func (d demand) rest(at time.Time) demand {
	if d.want > d.size && at.Sub(d.missed) >= quietTime {
		d.want, d.missed = max(d.size, d.want/2), at
	}
	return d
}

// goal is how many are to be ready while free more sandboxes may be made of all
// that may live. What is above the size leaves a quarter to requests.
func (d demand) goal(free, all int) int {
	if free <= all/4 {
		return d.size
	}
	return d.want
}
