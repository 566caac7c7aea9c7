package usage

import "time"

// Calm is how long it must not have been too much before a Watch takes it for over. What
// goes up and down around a threshold is told once.
const Calm = 10 * time.Second

// Change is what a Watch has to tell.
type Change int

// The changes.
const (
	Same    Change = iota
	Raised         // it has been too much for long enough
	Cleared        // it was Raised, and has not been too much for Calm
)

// Watch tells when something has been too much for long enough, and when that is over. The
// zero Watch has seen nothing.
type Watch struct {
	over, told bool
	since      time.Duration // of over
}

// Step takes whether it is too much at this moment. It returns Raised when it has been so
// at all moments of the given time, and Cleared after Calm.
func (w *Watch) Step(at time.Duration, over bool, long time.Duration) Change {
	if over != w.over {
		w.over, w.since = over, at
	}
	switch {
	case over && !w.told && at-w.since >= long:
		w.told = true
		return Raised
	case !over && w.told && at-w.since >= Calm:
		w.told = false
		return Cleared
	}
	return Same
}
