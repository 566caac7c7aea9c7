package ratelog

import (
	"slices"
	"testing"
	"time"
)

type told struct {
	v       int
	skipped uint64
}

func TestLog(t *testing.T) {
	var have []told
	s := Log[int]{Record: func(v int, skipped uint64) { have = append(have, told{v, skipped}) }}
	expect := func(when string, want ...told) {
		t.Helper()
		if !slices.Equal(have, want) {
			t.Errorf("%s: %v, want %v", when, have, want)
		}
		have = nil
	}
	s.Flush()
	expect("of nothing")
	s.Add(1)
	expect("with none before it", told{1, 0})
	s.Suppress(2)
	s.Suppress(3)
	expect("while they wait")
	s.Add(4)
	expect("with two before it", told{4, 2})
	s.Suppress(5)
	s.Suppress(6)
	s.Suppress(7)
	s.Flush()
	s.Flush()
	expect("the last one", told{7, 2})
	s.Add(8)
	expect("with none before it, again", told{8, 0})
}

// The last one has its record in time, whoever asks.
func TestLateness(t *testing.T) {
	have := make(chan told, 2)
	s := Log[int]{Record: func(v int, skipped uint64) { have <- told{v, skipped} }}
	begun := time.Now()
	s.Suppress(1)
	s.Suppress(2)
	select {
	case got := <-have:
		if took := time.Since(begun); got != (told{2, 1}) || took < Interval {
			t.Errorf("%v after %v", got, took)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it has no record")
	}
}
