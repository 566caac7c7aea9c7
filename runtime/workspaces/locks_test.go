package workspaces

import (
	"context"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// One at a time has a lock, who gives up waiting does not get it, and nothing is kept of one that
// nobody uses.
func TestLocks(t *testing.T) {
	var l locks
	release, err := l.acquire(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := l.try("one"); ok {
		t.Error("it was had twice")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.acquire(gone, "one"); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("a caller that left: %v", err)
	}
	if other, ok := l.try("two"); !ok {
		t.Error("another one is held")
	} else {
		other()
	}
	inside, all := 0, sync.WaitGroup{}
	for range 50 {
		all.Go(func() {
			release, err := l.acquire(context.Background(), "one")
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			if inside++; inside != 1 {
				t.Errorf("%d at once", inside)
			}
			inside--
		})
	}
	release()
	all.Wait()
	if len(l.by) != 0 {
		t.Errorf("%d locks are kept", len(l.by))
	}
}
