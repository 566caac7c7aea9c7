package runtime

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson/runtime/failpoint"
)

// State is where a sandbox stands.
type State string

// The states, in the order in which a sandbox passes them.
const (
	StateCreating State = "creating"
	StateAdopting State = "adopting" // an earlier daemon's, which has not yet answered this one
	StateRunning  State = "running"
	StatePaused   State = "paused"
	StateStopping State = "stopping"
	StateExited   State = "exited"
	StateRemoving State = "removing"
)

// States lists all states.
func States() []State {
	return []State{StateCreating, StateAdopting, StateRunning, StatePaused, StateStopping, StateExited, StateRemoving}
}

// over reports whether a sandbox in s has ended, or is to.
func (s State) over() bool { return s == StateStopping || s == StateExited || s == StateRemoving }

// next are the states that may follow each one.
var next = map[State][]State{
	StateCreating: {StateRunning, StateStopping, StateRemoving},
	StateAdopting: {StateRunning, StatePaused, StateStopping, StateExited},
	StateRunning:  {StatePaused, StateStopping},
	StatePaused:   {StateRunning, StateStopping},
	StateStopping: {StateExited, StateRemoving},
	StateExited:   {StateRemoving},
}

// wrongMovesPanic is set in tests, so that each move that the table lacks is found.
var wrongMovesPanic = failpoint.Enabled

// moveLocked makes to the state of s. It is the only way from one state to another. A move that
// the table lacks is a mistake of this package: it changes nothing and is logged.
func (h *host) moveLocked(s *sandbox, to State) {
	if !slices.Contains(next[s.state], to) {
		h.log.Error("change the state of a sandbox", "sandbox", s.id, "from", s.state, "to", to)
		if wrongMovesPanic {
			panic(fmt.Sprintf("sandbox %s: no way from %s to %s", s.id, s.state, to))
		}
		return
	}
	s.state = to
}

// move is moveLocked under the lock of s.
func (h *host) move(s *sandbox, to State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.moveLocked(s, to)
}
