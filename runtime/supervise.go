package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/observe"
)

// supervise sees a live sandbox to its end and removes what is to be removed.
// There is one for each, from its making or adoption on.
func (m *Manager) supervise(ctx context.Context, s *sandbox) {
	select {
	case <-s.asked:
	case <-s.init.Done():
		s.end(errInitLost)
	}
	if errors.Is(s.endCause(), errLeft) && !m.finishEnds(ctx, s) {
		m.leave(s)
		close(s.ended)
		return
	}
	cause := s.endCause()
	lived := m.beginEnd(s)
	if r := s.kept(); lived && r.outlives() && !r.keeps(cause) {
		m.keepRemoval(s)
	}
	m.endChildren(ctx, s)
	m.endProcesses(ctx, s)
	for _, e := range s.executions() { // each ends with PID 1
		<-e.kept
	}
	if !errors.Is(cause, errMainEnded) {
		used := s.meter.Total().Last
		m.log.Info("sandbox ended", append([]any{"sandbox", s.id, "cause", cause}, observe.ThrottledAttrs(used.ThrottledPeriods, used.Throttled)...)...)
	}
	m.emitOver(ctx, s, cause)
	if lived && s.kept().keeps(cause) {
		m.retire(ctx, s)
		m.keepUsage(s)
		close(s.ended)
		return
	}
	_ = m.strip(ctx, s) // removal tries again
	m.keepUsage(s)      // whoever removes it is answered after this
	close(s.ended)
	for _, e := range s.executions() { // who reads has time: what is left to read costs little
		<-e.left()
	}
	_ = m.destroy(ctx, s) // logs what fails; whoever removes it gets the error too
}

// beginEnd lets nothing more begin in s, and reports whether it was ever live: nobody
// was told of one that was not.
func (h *host) beginEnd(s *sandbox) (lived bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lived = s.state != StateCreating
	if s.state != StateStopping { // it was not stopped
		h.moveLocked(s, StateStopping)
	}
	if !lived {
		close(s.made)
	}
	return lived
}

// endProcesses kills whatever still runs in the sandbox and returns when nothing
// does: the pipes of its commands then have no writer left.
func (h *host) endProcesses(ctx context.Context, s *sandbox) {
	s.dead.Do(func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), h.opts.Timeouts.Remove,
			sbxerr.New(sbxerr.Deadline, "runtime.end", "the processes of sandbox %s did not end within %s", s.id, h.opts.Timeouts.Remove))
		defer cancel()
		if err := errors.Join(s.process.kill(), h.releaseKilled(ctx, s), s.process.wait(ctx)); err != nil {
			h.log.Error("end processes", "sandbox", s.id, "err", err)
			for _, e := range s.executions() { // a writer may live on: do not wait for it
				e.stopFilling()
			}
		}
		if s.kept().outlives() {
			s.meter.Measure(metered{h, s}) // the last of its cgroup
		}
		h.hangUp(s)
	})
}

// releaseKilled lets a sandbox whose PID 1 was killed go on to its end: a process that waits
// for a disk at a rate, and on cgroup v1 a frozen one, does not take notice of SIGKILL.
func (h *host) releaseKilled(ctx context.Context, s *sandbox) error {
	s.changing.Lock() // a pause or a change that is under way ends first
	defer s.changing.Unlock()
	r := s.kept()
	if r.Limits.RatesIO() {
		group, err := h.group(s.id)
		if err == nil {
			err = group.LiftIO()
		}
		if err != nil {
			h.log.Warn("lift the rates of I/O", "sandbox", s.id, "err", err)
		}
	}
	if !r.Paused {
		return nil
	}
	return h.withGroup(s, func(g *cgroups.Group) error { return g.Thaw(ctx) })
}

// hangUp ends the connection of a PID 1 that is gone, once its last words are
// read.
func (h *host) hangUp(s *sandbox) {
	select {
	case <-s.init.Done():
	case <-time.After(lastWords):
		if err := s.init.Close(); err != nil {
			h.log.Error("hang up", "sandbox", s.id, "err", err)
		}
	}
}

// lastWords is how long the connection of a dead PID 1 may still say something:
// it is not its own if it does for longer.
const lastWords = time.Second

// kill ends the sandbox's processes, of which PID 1's end is noticed elsewhere.
func (h *host) kill(s *sandbox) {
	if err := s.process.kill(); err != nil {
		h.log.Error("kill PID 1", "sandbox", s.id, "err", err)
	}
}

// keepRemoval keeps that s is to be removed: a daemon that comes after this one
// would take it for one that ended by itself.
func (h *host) keepRemoval(s *sandbox) {
	s.update(func() { s.record.Removing = true })
	h.keepRecord(s)
}

// retire frees what an ended sandbox no longer needs, and keeps its record and
// the output of its commands.
func (m *Manager) retire(ctx context.Context, s *sandbox) {
	s.update(func() { s.record.ExitedAt = time.Now().Round(0) })
	m.keepRecord(s)
	_ = m.strip(ctx, s) // Cleanup and removal try again
	m.move(s, StateExited)
}

// strip frees all of an ended sandbox but its record and its output, and logs what
// fails. One that is being removed is left to that.
func (m *Manager) strip(ctx context.Context, s *sandbox) error {
	s.stripping.Lock()
	defer s.stripping.Unlock()
	if s.kept().Stripped || s.info().State == StateRemoving {
		return nil
	}
	begin := time.Now()
	defer func() { s.update(func() { s.freeing += time.Since(begin) }) }()
	if err := errors.Join(s.closeHandles(), m.teardown(ctx, s.id, keptStages)); err != nil {
		m.log.Error("strip sandbox", "sandbox", s.id, "err", err)
		return err
	}
	s.update(func() { s.record.Stripped = true })
	if r := s.kept(); r.outlives() && !r.Removing {
		m.keepRecord(s)
	}
	return nil
}
