package usage

import "time"

// Watch tells when something has been too much for long enough. The zero Watch has seen
// nothing.
type Watch struct {
	over, told bool
	since      time.Duration
}

// Raise takes whether it is too much at this moment, and reports whether it has been so
// at all moments of the given time. It does so once, until it was not too much again.
func (w *Watch) Raise(at time.Duration, over bool, long time.Duration) bool {
	switch {
	case !over:
		*w = Watch{}
		return false
	case !w.over:
		w.over, w.since = true, at
	}
	if w.told || at-w.since < long {
		return false
	}
	w.told = true
	return true
}
