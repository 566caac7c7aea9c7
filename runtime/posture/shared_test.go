package posture

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Many who ask at once share readings, and none gets one that began before it asked.
func TestShared(t *testing.T) {
	var begun atomic.Int64
	s := shared[int64]{read: func() (int64, error) { return begun.Add(1), nil }}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 200 {
				before := begun.Load()
				if got, err := s.get(); got <= before || err != nil {
					t.Errorf("reading %d, %v, which began before %d", got, err, before)
				}
			}
		})
	}
	all.Wait()
	if n := begun.Load(); n > 50*200 {
		t.Errorf("%d readings", n)
	}
}
