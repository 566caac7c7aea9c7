package usage_test

import (
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/usage"
)

// fill adds one point each second: half a CPU, one byte read, and a peak of memory at the
// given second.
func fill(s *usage.Series, seconds, peak int) {
	for i := 1; i <= seconds; i++ {
		at := time.Duration(i) * time.Second
		p := usage.Point{At: at, CPU: at / 2, MemoryBytes: 10, PIDs: 1, IORead: int64(i)}
		if i == peak {
			p.MemoryBytes = 99
		}
		s.Add(p)
	}
}

func TestThinnedWithAge(t *testing.T) {
	const day = 24 * 3600
	var s usage.Series
	fill(&s, day, day/2)
	list := s.Samples()
	if n := len(list); n < 600 || n > 828 {
		t.Fatalf("%d samples are kept of a day", n)
	}
	var read, most int64
	at := time.Duration(0)
	for _, x := range list {
		if x.CPUPercent < 49.9 || x.CPUPercent > 50.1 {
			t.Fatalf("CPU %v at %v; want 50", x.CPUPercent, x.At)
		}
		if x.At <= at || x.At-at > 10*time.Minute {
			t.Fatalf("a sample at %v after one at %v", x.At, at)
		}
		at, read, most = x.At, read+x.IORead, max(most, x.MemoryBytes)
	}
	if at != day*time.Second || read != day || most != 99 {
		t.Errorf("the end %v, read %d, peak %d; want %v, %d, 99", at, read, most, day*time.Second, day)
	}
	if step := list[len(list)-1].At - list[len(list)-2].At; step != time.Second {
		t.Errorf("the last two are %v apart", step)
	}
}

// What is too old goes, and rates at the new beginning stay right.
func TestBounded(t *testing.T) {
	const days = 4 * 24 * 3600
	var s usage.Series
	fill(&s, days, 1)
	list := s.Samples()
	if len(list) != 828 {
		t.Errorf("%d samples; want 828", len(list))
	}
	if first := list[0]; first.CPUPercent < 49.9 || first.CPUPercent > 50.1 || first.MemoryBytes != 10 {
		t.Errorf("the oldest is %+v", first)
	}
}

func TestLast(t *testing.T) {
	var s usage.Series
	if p := s.Last(time.Second, 0); p != (usage.Point{}) {
		t.Errorf("of none: %+v", p)
	}
	fill(&s, 10, 0)
	if p := s.Last(10*time.Second, 500*time.Millisecond); p.At != 9*time.Second {
		t.Errorf("half a second ago: %v; want 9s", p.At)
	}
}

func TestCounterThatBeginsAnew(t *testing.T) {
	got := usage.Point{At: 2 * time.Second, CPU: time.Second}.Since(usage.Point{At: time.Second, CPU: time.Minute, SentBytes: 5})
	if got.CPUPercent != 0 || got.SentBytes != 0 {
		t.Errorf("%+v", got)
	}
}

func TestWatch(t *testing.T) {
	var w usage.Watch
	changes := map[int]usage.Change{6: usage.Raised, 32: usage.Cleared, 36: usage.Raised}
	// Too short at first, then up, with times below that are too short to be over.
	for i, over := range "++-++++++-+---------++-----------++++" {
		if got := w.Step(time.Duration(i)*time.Second, over == '+', 3*time.Second); got != changes[i] {
			t.Errorf("second %d: %v, want %v", i, got, changes[i])
		}
	}
	if new(usage.Watch).Step(0, true, 0) != usage.Raised {
		t.Error("not at once")
	}
}
