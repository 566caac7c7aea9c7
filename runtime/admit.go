package runtime

import (
	"fmt"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
)

// admit makes s known under its ID and name, or refuses a name that is taken,
// be it as another's name or ID, and one sandbox too many.
func (m *Manager) admit(s *sandbox) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.openLocked(); err != nil {
		return err
	}
	if err := m.checkRoomLocked(s); err != nil {
		return err
	}
	if err := m.claimNameLocked(s.record); err != nil {
		return err
	}
	if s.plan != nil && !s.record.Pooled { // one that is adopted has been granted
		if err := m.admitGrantedLocked(s.plan.Grant, s.record); err != nil {
			return err
		}
	}
	m.sandboxes[s.id] = s
	if len(m.sandboxes) == 1 {
		select {
		case m.first <- struct{}{}:
		default:
		}
	}
	m.work.Add(1) // while open: Close waits for no more than it can see
	return nil
}

// checkRoomLocked refuses one sandbox too many. The last few are for root's own
// requests: whatever peers, sandboxes and pools have made, root can make one.
func (m *Manager) checkRoomLocked(s *sandbox) error {
	const op = "runtime.create"
	most := m.opts.MaxSandboxes
	if most <= 0 || s.plan == nil { // one that is adopted was not too many when it was made
		return nil
	}
	ended := retiredIn(m.sandboxes)
	there := len(m.sandboxes) - ended
	if there >= most {
		return sbxerr.New(sbxerr.Busy, op, "there are %d sandboxes, which is the most (sandboxes.max)", there)
	}
	if ended >= peer.KeptEnded*most {
		return sbxerr.WithRemedy(sbxerr.Busy, op, fmt.Errorf("%d sandboxes have ended and were not removed: the most is %d for each of sandboxes.max", ended, peer.KeptEnded), peer.RemoveEnded)
	}
	if last := m.opts.ForRoot; !s.plan.Grant.IsRoot() && there >= most-last {
		return sbxerr.New(sbxerr.Busy, op, "there are %d sandboxes, and the last %d of %d (sandboxes.max) are for root", there, last, most)
	}
	return nil
}

// retiredIn counts those of all that have ended.
func retiredIn(all map[string]*sandbox) (n int) {
	for _, s := range all {
		if s.retired() {
			n++
		}
	}
	return n
}

// openLocked refuses a sandbox for anybody once none are to come.
func (m *Manager) openLocked() error {
	if m.closed {
		return sbxerr.New(sbxerr.State, "runtime.create", "the daemon is stopping")
	}
	return nil
}

// admitGrantedLocked refuses a sandbox that g does not allow beside those that
// there are.
func (m *Manager) admitGrantedLocked(g peer.Grant, r record) error {
	if err := m.checkParentLocked(r); err != nil {
		return err
	}
	return g.CheckQuota(m.standingLocked(g), r.usage())
}

// forget drops what admit took in.
func (m *Manager) forget(s *sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.kept().Pooled { // what only waited was no use
		m.lastUse = time.Now()
	}
	delete(m.sandboxes, s.id)
	m.expired.note(s)
	close(s.gone)
	m.work.Done()
}
