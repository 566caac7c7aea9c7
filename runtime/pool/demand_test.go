package pool

import (
	"testing"
	"time"
)

func TestDemandGrowsAndRests(t *testing.T) {
	at := time.Unix(1000, 0)
	d := newDemand(3, 20)
	for _, step := range []struct {
		name string
		do   func(demand) demand
		want int
	}{
		{"a miss before it was full for the first time", func(d demand) demand { return d.miss(at) }, 3},
		{"full", func(d demand) demand { return d.ready(2).ready(3) }, 3},
		{"a burst of misses counts once", func(d demand) demand { return d.miss(at).miss(at).miss(at) }, 6},
		{"as many as before are not full", func(d demand) demand { return d.ready(5).miss(at) }, 6},
		{"full again, then emptied and missed", func(d demand) demand { return d.ready(6).ready(0).miss(at) }, 12},
		{"never above max", func(d demand) demand { return d.ready(12).miss(at) }, 20},
		{"nor after that", func(d demand) demand { return d.ready(20).miss(at) }, 20},
		{"not quiet for long enough", func(d demand) demand { return d.rest(at.Add(quietTime-1), at) }, 20},
		{"quiet", func(d demand) demand { return d.rest(at.Add(quietTime), at) }, 10},
		{"not once more for the same time", func(d demand) demand { return d.rest(at.Add(quietTime+1), at) }, 10},
		{"quiet for longer", func(d demand) demand { return d.rest(at.Add(2*quietTime), at) }, 5},
		{"down to the size", func(d demand) demand { return d.rest(at.Add(3*quietTime), at).rest(at.Add(4*quietTime), at) }, 3},
	} {
		if d = step.do(d); d.want != step.want {
			t.Fatalf("%s: wants %d, not %d", step.name, d.want, step.want)
		}
	}
}

// A pool without a max of its own stays as it is.
func TestDemandWithoutMax(t *testing.T) {
	if d := newDemand(4, 0).ready(4).miss(time.Unix(1, 0)); d.want != 4 {
		t.Errorf("wants %d", d.want)
	}
}

func TestDemandLeavesRoom(t *testing.T) {
	d := newDemand(10, 50).ready(10).miss(time.Unix(1, 0))
	for _, tt := range []struct{ free, all, goal int }{{100, 100, 20}, {45, 100, 20}, {40, 100, 15}, {25, 100, 10}, {0, 100, 10}, {1, 1, 10}} {
		if got := d.goal(tt.free, tt.all); got != tt.goal {
			t.Errorf("with %d of %d free: %d, want %d", tt.free, tt.all, got, tt.goal)
		}
	}
}
