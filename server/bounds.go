package server

import "sync"

// bound is an amount that some callers share.
type bound struct {
	name string
	most int
}

// amounts counts what callers have, by the names of their bounds.
type amounts struct {
	mu   sync.Mutex
	held map[string]int
}

func newAmounts() *amounts { return &amounts{held: map[string]int{}} }

// take adds n to all of bounds, if it is within each.
func (a *amounts) take(bounds []bound, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bounds {
		if a.held[b.name]+n > b.most {
			return false
		}
	}
	for _, b := range bounds {
		a.held[b.name] += n
	}
	return true
}

// give takes n off again.
func (a *amounts) give(bounds []bound, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bounds {
		if a.held[b.name] -= n; a.held[b.name] == 0 {
			delete(a.held, b.name)
		}
	}
}
