package runtime

import (
	"slices"
	"testing"
)

// setState gives s a state that a test wants, whatever it had.
func (s *sandbox) setState(to State) { s.update(func() { s.state = to }) }

// From each state, only those follow that the table names, and from each of them a sandbox can
// be removed. Nothing follows its removal, and nothing leads back to its making.
func TestStates(t *testing.T) {
	m := newTestManager()
	for _, from := range States() {
		for _, to := range States() {
			s := &sandbox{state: from}
			moved := mayMove(m, s, to)
			if want := slices.Contains(next[from], to); moved != want || moved && s.state != to || !moved && s.state != from {
				t.Errorf("from %s to %s: %v, and it is %s", from, to, moved, s.state)
			}
			if moved && (to == StateCreating || to == StateAdopting) {
				t.Errorf("%s leads to %s", from, to)
			}
		}
		if end := lastOf(from); end != StateRemoving {
			t.Errorf("from %s a sandbox comes to %s", from, end)
		}
	}
}

// mayMove moves s, and reports whether the table has that move.
func mayMove(m *Manager, s *sandbox, to State) (moved bool) {
	defer func() { moved = recover() == nil }()
	m.move(s, to)
	return true
}

// lastOf goes on from a state by the last of those that may follow, until none may.
func lastOf(from State) State {
	for range States() {
		follow := next[from]
		if len(follow) == 0 {
			break
		}
		from = follow[len(follow)-1]
	}
	return from
}
