package runtime

import "slices"

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

// moveLocked makes to the state of s, and reports whether it may follow the one that s has. It
// is the only way from one state to another.
func (s *sandbox) moveLocked(to State) bool {
	if !slices.Contains(next[s.state], to) {
		return false
	}
	s.state = to
	return true
}

// move is moveLocked for a state that must be one that may follow.
func (h *host) move(s *sandbox, to State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from := s.state; !s.moveLocked(to) {
		h.log.Error("change the state of a sandbox", "sandbox", s.id, "from", from, "to", to)
	}
}
