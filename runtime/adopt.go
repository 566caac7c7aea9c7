package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/layers"
	"github.com/caisson-run/caisson/runtime/posture"
)

// know makes a sandbox of an earlier daemon known again, and opens what needs no
// word of its PID 1. On an error it is unknown, and so left to Cleanup.
func (r *recovery) know(ctx context.Context, kept record) (*sandbox, error) {
	switch {
	case kept.Pooled:
		return nil, sbxerr.New(sbxerr.State, "runtime.adopt", "it waited in a pool")
	case kept.Settings.Build:
		return nil, sbxerr.New(sbxerr.State, "runtime.adopt", "it was for a step of an image's build")
	case !kept.Ready:
		return nil, sbxerr.New(sbxerr.State, "runtime.adopt", "it was not finished")
	case kept.Removing:
		return nil, sbxerr.New(sbxerr.State, "runtime.adopt", "it was being removed")
	}
	s := r.newSandbox(nil, kept)
	s.stages, s.warnings, s.block = kept.Stages, kept.Warnings, idblock.Block{Base: kept.HostIDBase}
	s.unheard, s.following = true, true
	if err := r.admit(s); err != nil {
		return nil, err
	}
	var err error
	if kept.ExitedAt.IsZero() {
		err = r.reopen(ctx, s)
	} else {
		err = r.adoptExited(ctx, s)
	}
	if errors.Is(err, errProcessEnded) && kept.outlives() {
		err = r.adoptEnded(ctx, s)
	}
	if err != nil {
		r.disregard(s)
		return nil, err
	}
	r.regainTurn(s)
	return s, nil
}

// adoptExited goes on with what is kept of an ended sandbox.
func (h *host) adoptExited(ctx context.Context, s *sandbox) error {
	if _, err := h.loadExecs(ctx, s, nil, ends{}); err != nil {
		return err
	}
	h.emitAdopted(ctx, s)
	h.settleExited(s)
	return nil
}

// settleExited makes s one that has ended, as retire does.
func (h *host) settleExited(s *sandbox) {
	s.end(errMainEnded)
	h.move(s, StateExited)
	close(s.ended)
	close(s.made)
}

// adoptEnded goes on with what is kept of a sandbox that ended while no daemon was
// there to see it, or to keep that it did.
func (h *host) adoptEnded(ctx context.Context, s *sandbox) error {
	left, err := h.readEnds(s.id)
	if err != nil {
		return err
	}
	if _, err := h.loadExecs(ctx, s, nil, left); err != nil {
		return err
	}
	at := time.Now().Round(0)
	if !left.at.IsZero() {
		at = left.at
	}
	if main := s.execs[s.kept().Main]; main != nil && !main.record.EndedAt.IsZero() {
		at = main.record.EndedAt
	}
	s.update(func() { s.record.ExitedAt = at })
	h.keepRecord(s)
	h.log.Info("a sandbox of an earlier daemon has ended", "sandbox", s.id)
	h.emitAdopted(ctx, s)
	h.emitOver(ctx, s, errNoDaemon)
	h.settleExited(s)
	return nil
}

// adoptLive goes on with a sandbox whose PID 1 has the time to come back.
func (r *recovery) adoptLive(ctx context.Context, s *sandbox) error {
	if err := r.adoptStages(ctx, s, true); err != nil {
		return err
	}
	held, err := r.connect(ctx, s, adoptTimeout)
	if err != nil && s.process.ended() {
		return errors.Join(errProcessEnded, err)
	}
	if err != nil {
		return err
	}
	running, err := r.loadExecs(ctx, s, held, ends{})
	if err != nil {
		return err
	}
	err = r.compare(ctx, s, running, r.atOnce)
	s.init.SetFrozen(s.kept().Paused)
	if err == nil {
		err = r.freezeAgain(ctx, s)
	}
	if err != nil && !s.process.ended() { // else it ends as it would a moment later
		return err
	}
	s.update(func() {
		r.moveLocked(s, s.record.adopted())
		s.idleAgainLocked()
	})
	r.emitAdopted(ctx, s)
	go r.supervise(context.WithoutCancel(ctx), s)
	for _, e := range s.executions() {
		if e.isDone() && e.process() != nil {
			r.letGo(e)
		}
	}
	for _, e := range running {
		if !e.record.Detached && !s.isMain(e) {
			e.mu.Lock()
			e.orphanLocked(r.opts.AttachGrace)
			e.mu.Unlock()
		}
		go r.watch(context.WithoutCancel(ctx), e)
	}
	if over := s.overBefore(); over != nil {
		s.end(over)
	}
	if lost := layers.Check(s.kept().Layers); lost != nil { // before anybody can run something in it
		r.log.Warn("end a sandbox of an earlier daemon", "sandbox", s.id, "reason", lost)
		s.end(lost)
	}
	r.stopAgain(ctx, s)
	s.rearm()
	return nil
}

// adopted is the state of a live sandbox of an earlier daemon that has answered.
func (r record) adopted() State {
	switch {
	case r.Paused:
		return StatePaused
	case r.StopBy != 0:
		return StateStopping
	}
	return StateRunning
}

// overBefore is why a sandbox that is for one command ends now that an earlier
// daemon did, nil where it does not.
func (s *sandbox) overBefore() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record
	switch main := s.execs[r.Main]; {
	case !r.forCommand():
		return nil
	case !r.Detached: // its caller's connection ended with the earlier daemon
		return errCallerLeft
	case main == nil || main.isDone():
		return errMainEnded
	}
	return nil
}

// forCommand reports whether a sandbox is for one command, which may not have a
// number yet.
func (r record) forCommand() bool { return r.Main != 0 || len(r.MainArgs) > 0 }

// compare finds the cgroups of the running commands, and whether the live sandbox
// is as it was declared. It waits for the daemon's surroundings before its turn, so that
// all sandboxes share a reading or two.
func (h *host) compare(ctx context.Context, s *sandbox, running []*execution, atOnce slots) error {
	around, err := posture.ReadSurroundings()
	if err != nil {
		return err
	}
	return atOnce.do(func() error {
		if err := h.loadGroups(ctx, s, running); err != nil {
			return err
		}
		return errors.Join(h.finishChange(s), h.finishAttach(s), h.checkPostureIn(ctx, s, around))
	})
}

// freezeAgain freezes a paused sandbox, which went on for its PID 1 to come back.
func (h *host) freezeAgain(ctx context.Context, s *sandbox) error {
	if !s.kept().Paused {
		return nil
	}
	return h.withGroup(s, func(g *cgroups.Group) error { return g.Freeze(ctx) })
}

func (h *host) withGroup(s *sandbox, do func(*cgroups.Group) error) error {
	group, err := h.group(s.id)
	if err != nil {
		return err
	}
	return do(group)
}

// reopen adopts what a live sandbox has on the host, and then lets its PID 1 come back. A
// frozen one is let go on for it.
func (r *recovery) reopen(ctx context.Context, s *sandbox) error {
	have := s.kept()
	process, err := openKnown(have.PID, have.PIDBegan)
	if err != nil {
		return err
	}
	s.update(func() { s.process = process })
	if err := r.adoptStages(ctx, s, false); err != nil {
		return err
	}
	if err := r.finishRewind(s); err != nil { // before PID 1 looks for the daemon: half done, it finds no socket
		return err
	}
	if have.Paused || have.Halted {
		s.update(func() { s.record.Halted = false })
		return r.withGroup(s, func(g *cgroups.Group) error { return g.Thaw(ctx) })
	}
	return nil
}

// adoptStages does the part of the stages' adoption that is late, or the part that is not.
func (r *recovery) adoptStages(ctx context.Context, s *sandbox, late bool) error {
	for _, st := range r.stages {
		if st.adopt == nil || st.late != late {
			continue
		}
		if err := errors.Join(st.adopt(r, ctx, s), failpoint.At("adopt/"+st.name)); err != nil {
			return fmt.Errorf("adopt %s: %w", st.name, err)
		}
	}
	return nil
}
