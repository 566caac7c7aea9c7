package server

import "sync"

// bound is an amount that some callers share.
type bound struct {
	name  string
	most  int
	spare int // of most, for callers that hold little
}

// little is what a caller may hold to have the spare part of a bound too.
const little = 256 << 10

// amounts counts what callers have, by the names of their bounds.
type amounts struct {
	mu   sync.Mutex
	held map[string]int
}

func newAmounts() *amounts { return &amounts{held: map[string]int{}} }

// take adds n to all of bounds, if it is within each. The first bound is the caller's own.
func (a *amounts) take(bounds []bound, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bounds {
		most := b.most
		if a.held[bounds[0].name]+n > little {
			most -= b.spare
		}
		if a.held[b.name]+n > most {
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
