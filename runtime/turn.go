package runtime

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/queue"
)

// awaitTurn waits until fewer sandboxes run than may (Options.MaxRunning), and takes a place
// among them. What a sandbox makes is refused instead: it may itself have the place for
// which it would wait.
func (m *Manager) awaitTurn(ctx context.Context, p *plan.Sandbox) (*queue.Place, error) {
	turn, err := m.running.Enter(queue.UserOf(p.Grant))
	if err != nil || turn.IsThrough() {
		return turn, err
	}
	if p.Grant.Parent() != "" {
		turn.Leave()
		return nil, sbxerr.New(sbxerr.Busy, "runtime.create", "%d sandboxes run, which is the most (sandboxes.max_running)", m.running.Slots())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.leaving, func() { cancel(m.leaveCause()) })()
	if err := turn.Pass(ctx); err != nil {
		turn.Leave()
		return nil, fmt.Errorf("wait until fewer than %d sandboxes run (sandboxes.max_running): %w", m.running.Slots(), err)
	}
	return turn, nil
}

// keepTurn gives s its place among those that run. It leaves it when it has ended.
func (s *sandbox) keepTurn(turn *queue.Place) {
	if turn.Unbounded() {
		return
	}
	s.turn.Store(turn)
	go func() {
		<-s.ended
		if turn := s.passTurnOn(); turn != nil {
			turn.Leave()
		}
	}()
}

// passTurnOn takes the place from s, for the sandbox that replaces it; nil if it has none.
func (s *sandbox) passTurnOn() *queue.Place { return s.turn.Swap(nil) }

// regainTurn gives a sandbox of an earlier daemon a place. More of them than may run
// stay, without one.
func (m *Manager) regainTurn(s *sandbox) {
	r := s.kept()
	turn, err := m.running.Enter(queue.User{UID: r.owner().UID, Root: r.owner().UID == 0 && r.Parent == ""})
	switch {
	case err != nil:
	case turn.IsThrough():
		s.keepTurn(turn)
	default:
		turn.Leave()
	}
}
