package runtime

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	adoptTimeout = 10 * time.Second // for PID 1 to come back
	adoptSoon    = time.Second      // of that, the time before others are served
	adoptAtOnce  = 32
)

// recovery is the work of Recover, some of which goes on after it.
type recovery struct {
	*Manager
	atOnce  slots
	filters filters

	mu   sync.Mutex
	over bool // nothing is waited for: Cleanup takes no notice of what is still known
}

// slots bounds how many do the same at once.
type slots chan struct{}

func (s slots) do(f func() error) error {
	s <- struct{}{}
	defer func() { <-s }()
	return f()
}

// Recover goes on with the sandboxes that an earlier daemon left, and returns how
// many it knows again. It is called before anything is served, and needs no engine.
// One whose PID 1 has ended is gone on with as one that ended. What cannot be gone on
// with is left to Cleanup: what was half made or was being removed, what is for a
// caller that waited for it, and what is no longer as it was declared.
//
// Whatever depends on a sandbox's own PID 1 holds up the others no longer than
// adoptSoon. One whose PID 1 does not answer by then is known by its name, counts,
// and is StateAdopting; it is gone on with when it answers, and removed when it
// does not within adoptTimeout.
func (m *Manager) Recover(ctx context.Context) (known int, err error) {
	m.workspaces.Recover(m.paths.applied)
	ids, err := m.sandboxDirs()
	if err != nil {
		return 0, err
	}
	r := &recovery{Manager: m, atOnce: make(slots, adoptAtOnce)}
	records := r.readRecords(ids)
	if err := checkHost(records, m.stock); err != nil {
		return 0, err
	}
	r.await(ctx, r.knowAll(ctx, records))
	r.conclude() // first: the children of what is dropped after endOrphans would live on
	m.endOrphans(ctx)
	err = m.settleBridge()
	return len(m.all()), err
}

// conclude lets nothing be dropped any more: what does not come back is given up.
func (r *recovery) conclude() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// readRecords reads the records of the sandboxes. One without a record is not gone on with.
func (r *recovery) readRecords(ids []string) []record {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var records []record
	for _, id := range ids {
		wg.Go(func() {
			var kept record
			err := r.atOnce.do(func() (err error) { kept, err = readRecord(r.paths.record(id), r.boot); return err })
			if err == nil && kept.ID != id {
				err = sbxerr.New(sbxerr.StateDir, "runtime.adopt", "its record is that of %s", kept.ID)
			}
			if err != nil {
				r.refused(id, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			records = append(records, kept)
		})
	}
	wg.Wait()
	return records
}

// knowAll makes the sandboxes known again, and returns those whose PID 1 is to be
// awaited. All that they have on the host is theirs again then. A parent is known before its
// children, whose policies follow its own.
func (r *recovery) knowAll(ctx context.Context, records []record) (live []*sandbox) {
	generations := map[int][]record{}
	for _, kept := range records {
		depth := len(kept.above())
		generations[depth] = append(generations[depth], kept)
	}
	for _, depth := range slices.Sorted(maps.Keys(generations)) {
		live = append(live, r.knowThese(ctx, generations[depth])...)
	}
	return live
}

func (r *recovery) knowThese(ctx context.Context, records []record) (live []*sandbox) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, kept := range records {
		wg.Go(func() {
			var s *sandbox
			err := r.atOnce.do(func() (err error) { s, err = r.know(ctx, kept); return err })
			switch {
			case err != nil && kept.Pooled: // nobody has it, and a pool makes others
				r.log.Debug("a ready sandbox of an earlier daemon is removed", "sandbox", kept.ID)
			case err != nil:
				r.refused(kept.ID, err)
			case !s.retired():
				mu.Lock()
				defer mu.Unlock()
				live = append(live, s)
			}
		})
	}
	wg.Wait()
	return live
}

// refused says why a sandbox is not gone on with.
func (h *host) refused(id string, err error) {
	h.log.Warn("do not go on with a sandbox of an earlier daemon", "sandbox", id, "reason", err)
}

// await returns when it is known of all sandboxes whether they are gone on with, or
// after adoptSoon.
func (r *recovery) await(ctx context.Context, live []*sandbox) {
	soon := time.NewTimer(adoptSoon)
	defer soon.Stop()
	for _, s := range live {
		go r.adopt(context.WithoutCancel(ctx), s) // who ends the daemon ends the sandbox, or leaves it
	}
	for i, s := range live {
		select {
		case <-s.made:
		case <-soon.C:
			r.tellSilent(live[i:])
			return
		}
	}
}

func (r *recovery) tellSilent(live []*sandbox) {
	for _, s := range live {
		if s.awaited() {
			r.log.Warn("serve before a sandbox of an earlier daemon answers", "sandbox", s.id)
		}
	}
}

// adopt goes on with a sandbox, or lets go of it.
func (r *recovery) adopt(ctx context.Context, s *sandbox) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.endBy(cancel)
	err := r.adoptLive(ctx, s)
	s.endBy(nil)
	if errors.Is(err, errProcessEnded) && s.endCause() == nil && s.kept().outlives() {
		if err = r.adoptEnded(ctx, s); err == nil {
			r.endChildren(ctx, s)
			_ = r.strip(ctx, s) // Cleanup and removal try again
			return
		}
	}
	if err == nil || r.drop(s, err) {
		close(s.made)
		return
	}
	s.end(err)
	r.move(s, StateStopping)
	close(s.made)
	r.giveUp(context.WithoutCancel(ctx), s, err)
}

// drop makes s unknown, and so leaves it to Cleanup. It reports false where it is
// too late for that.
func (r *recovery) drop(s *sandbox, reason error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	r.refused(s.id, reason)
	r.disregard(s)
	return true
}

// disregard makes a sandbox of an earlier daemon unknown again.
func (m *Manager) disregard(s *sandbox) {
	if err := errors.Join(s.closeHandles(), s.closeExecs()); err != nil {
		m.log.Error("let go of a sandbox of an earlier daemon", "sandbox", s.id, "err", err)
	}
	m.forget(s)
}

// giveUp ends and removes a sandbox that did not come back while others were
// served, unless it is left to the next daemon.
func (m *Manager) giveUp(ctx context.Context, s *sandbox, reason error) {
	if errors.Is(s.endCause(), errLeft) {
		if err := m.freezeAgain(ctx, s); err != nil {
			m.log.Error("pause again", "sandbox", s.id, "err", err)
		}
		m.leave(s)
		close(s.ended)
		return
	}
	m.refused(s.id, reason)
	m.keepRemoval(s)
	m.endChildren(ctx, s)
	if err := m.killSilent(ctx, s); err != nil {
		m.log.Error("end processes", "sandbox", s.id, "err", err)
	}
	m.loseExecs(ctx, s)
	close(s.ended)
	for _, e := range s.executions() { // who reads has time, as after any other end
		<-e.left()
	}
	_ = m.destroy(ctx, s) // logs what fails
}

// killSilent ends all processes of a sandbox without a word from its PID 1.
func (h *host) killSilent(ctx context.Context, s *sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Remove)
	defer cancel()
	return errors.Join(s.process.kill(), h.releaseKilled(ctx, s), s.process.wait(ctx))
}

// awaitAdopted waits until it is known whether this daemon goes on with s.
func (m *Manager) awaitAdopted(ctx context.Context, s *sandbox) error {
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	select {
	case <-s.made:
		return nil
	case <-ctx.Done():
		return sbxerr.Wrap(sbxerr.Canceled, "runtime.adopt", context.Cause(ctx))
	}
}
