package limits

import (
	"errors"
	"sync"
	"testing"
)

// fill has r enter until there is no place or it has limit.
func fill(r *Share, limit int) (held int) {
	for held < limit && r.Acquire() == nil {
		held++
	}
	return held
}

// Whatever some rooms take, one more finds places, and no room more than its part.
func TestLimiterKeepsSlots(t *testing.T) {
	h := New(8000)
	for n := range 12 {
		held := fill(h.Share(), 1024)
		if n < 7 && held != 1024 {
			t.Errorf("share %d of a limiter with slots left has %d", n, held)
		}
		if held < 50 {
			t.Errorf("after %d rooms another one gets %d", n, held)
		}
	}
	for n := range 12 {
		if held := fill(h.Share(), 5); held != 5 {
			t.Errorf("beside them, the room %d for little gets %d", n, held)
		}
	}
	if h.Taken() > h.most {
		t.Errorf("%d places are taken of %d", h.Taken(), h.most)
	}
}

// What is left is there again, for others too, and a refusal costs no place.
func TestLeave(t *testing.T) {
	h := New(4)
	one, other := h.Share(), h.Share()
	if held := fill(one, 5); held != 4 {
		t.Fatalf("it has %d of 4", held)
	}
	for range 3 {
		if err := other.Acquire(); !errors.Is(err, ErrFull) {
			t.Errorf("in a full limiter: %v", err)
		}
	}
	one.Release()
	if err := other.Acquire(); err != nil {
		t.Error(err)
	}
	if one.held.Load() != 3 || other.held.Load() != 1 || h.Taken() != 4 {
		t.Errorf("%d and %d of %d", one.held.Load(), other.held.Load(), h.Taken())
	}
}

func TestTogether(t *testing.T) {
	h := New(100)
	var all sync.WaitGroup
	for range 8 {
		r := h.Share()
		all.Go(func() {
			for range 1000 {
				if r.Acquire() == nil {
					r.Release()
				}
			}
		})
	}
	all.Wait()
	if h.Taken() != 0 {
		t.Errorf("%d places are taken", h.Taken())
	}
}

// The halls of a process are within its limit together, and leave some of it.
func TestLimitersOfThisProcess(t *testing.T) {
	if Connections.most < 100 || Lookups.most < 10 || Lookups.most > mostLookups {
		t.Errorf("this process has %d places for connections and %d for lookups", Connections.most, Lookups.most)
	}
	if all, most := 2*(Connections.most+Lookups.most), descriptors()*9/10; all > most {
		t.Errorf("all places take %d descriptors, of which there are %d", all, most)
	}
}
