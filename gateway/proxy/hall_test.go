package proxy

import "testing"

// Whatever some rooms take, one more finds places, and no room more than its part.
func TestHallHasPlacesLeft(t *testing.T) {
	h := &hall{most: 8000}
	fill := func(limit int) (held int) {
		for held < limit && h.enter(held) == nil {
			held++
		}
		return held
	}
	for n := range 12 {
		held := fill(1024)
		if n < 7 && held != 1024 {
			t.Errorf("the room %d of a hall with places for it has %d", n, held)
		}
		if held < 50 {
			t.Errorf("after %d rooms another one gets %d", n, held)
		}
	}
	for n := range 12 {
		if held := fill(5); held != 5 {
			t.Errorf("beside them, the room %d for little gets %d", n, held)
		}
	}
	if taken := h.taken.Load(); taken > h.most {
		t.Errorf("%d places are taken of %d", taken, h.most)
	}
	if everybody.most < 100 {
		t.Errorf("this process has %d places", everybody.most)
	}
}

// A connection without a place is ended as one past another limit is, and those that are
// over give theirs back.
func TestNoPlaceInTheHall(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, nil)
	b.room.mu.Lock()
	b.room.hall = &hall{most: 1}
	b.room.mu.Unlock()
	for range 2 {
		first := b.dial("a.test", 22)
		b.expectReset()
		if got, err := talk(first, "x"); got != "x" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if a := b.record(); a.Verdict != Allowed || a.Skipped != 1 {
			t.Errorf("%+v", a)
		}
	}
	if n := b.room.hall.taken.Load(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
