package proxy

import (
	"testing"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/limits"
)

// A connection without a place is ended as one past another limit is, and those that are
// over give theirs back.
func TestNoSlot(t *testing.T) {
	b, one := start(t, allow("a.test:22"), echo, nil), limits.New(1)
	b.room.mu.Lock()
	b.room.part = one.Share()
	b.room.mu.Unlock()
	for range 2 {
		first := b.dial("a.test", 22)
		b.expectReset()
		b.expectSurplus()
		if got, err := talk(first, "x"); got != "x" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if a := b.record(); a.Verdict != attempt.Allowed || a.Skipped != 0 {
			t.Errorf("%+v", a)
		}
	}
	if n := one.Taken(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
