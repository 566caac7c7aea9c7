package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/sbxerr"
)

const (
	adoptTimeout = 10 * time.Second // for PID 1 to come back
	adoptAtOnce  = 32
)

// Recover goes on with the sandboxes that an earlier daemon left. It is called
// before anything is served, and needs no engine. What cannot be gone on with is
// left to Cleanup: what was half made, what does not answer, and what is no longer
// as it was declared.
func (m *Manager) Recover(ctx context.Context) (adopted int, err error) {
	ids, err := m.sandboxDirs()
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, adoptAtOnce)
	for _, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := m.adopt(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				adopted++
				return
			}
			m.log.Warn("do not go on with a sandbox of an earlier daemon", "sandbox", id, "reason", err)
		})
	}
	wg.Wait()
	m.endOrphans()
	return adopted, m.settleBridge()
}

// adopt goes on with one sandbox. On an error it is unknown again, and so left
// to Cleanup.
func (m *Manager) adopt(ctx context.Context, id string) (err error) {
	r, err := readRecord(m.paths.record(id), m.boot)
	switch {
	case err != nil:
		return err
	case r.ID != id:
		return sbxerr.New(sbxerr.StateDir, "runtime.adopt", "its record is that of %s", r.ID)
	case !r.Ready:
		return sbxerr.New(sbxerr.State, "runtime.adopt", "it was not finished")
	case r.Pooled:
		return sbxerr.New(sbxerr.State, "runtime.adopt", "it waited in a pool")
	}
	s := m.newSandbox(nil, r)
	close(s.made)
	s.stages, s.warnings, s.block = r.Stages, r.Warnings, idblock.Block{Base: r.HostIDBase}
	if err := m.admit(s); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeHandles(), s.closeExecs())
			m.forget(s)
		}
	}()
	if !r.ExitedAt.IsZero() {
		return m.adoptExited(s)
	}
	return m.adoptLive(ctx, s)
}

// adoptExited goes on with what is kept of an ended sandbox.
func (m *Manager) adoptExited(s *sandbox) error {
	if _, err := m.loadExecs(s, nil); err != nil {
		return err
	}
	s.end(errMainEnded)
	close(s.ended)
	s.setState(StateExited)
	return nil
}

func (m *Manager) adoptLive(ctx context.Context, s *sandbox) error {
	held, err := m.reconnect(ctx, s)
	if err != nil {
		return err
	}
	running, err := m.loadExecs(s, held)
	if err != nil {
		return err
	}
	if err := m.loadGroups(ctx, s, running); err != nil {
		return err
	}
	if err := errors.Join(m.finishChange(s), m.checkPosture(ctx, s)); err != nil {
		return err
	}
	s.mu.Lock()
	s.state = StateRunning
	if s.record.Paused {
		s.state = StatePaused
		s.init.SetFrozen(true)
	}
	s.idleAgainLocked()
	s.mu.Unlock()
	go m.supervise(context.WithoutCancel(ctx), s)
	for _, e := range running {
		if !e.record.Detached && !s.isMain(e) {
			e.mu.Lock()
			e.orphanLocked(m.opts.AttachGrace)
			e.mu.Unlock()
		}
		go m.watch(context.WithoutCancel(ctx), e)
	}
	if r := s.kept(); r.Main != 0 && !r.Detached { // its caller's connection ended with the earlier daemon
		s.end(errCallerLeft)
	}
	s.rearm()
	if s.kept().Paused {
		return m.withGroup(s, func(g freezer) error { return g.Freeze(ctx) })
	}
	return nil
}

// loadGroups goes on with the cgroups of the running commands, and ends and
// removes those of commands that are over.
func (m *Manager) loadGroups(ctx context.Context, s *sandbox, running []*execution) error {
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	group, err := m.group(s.id)
	if err != nil {
		return err
	}
	names, err := group.Children()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		child, err := group.Child(name)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(running, func(e *execution) bool { return e.record.Cgroup == name })
		if at >= 0 {
			running[at].group = child
			continue
		}
		errs = append(errs, child.Kill(ctx), child.Remove(ctx))
	}
	return errors.Join(errs...)
}

type freezer interface {
	Freeze(context.Context) error
	Thaw(context.Context) error
}

func (m *Manager) withGroup(s *sandbox, do func(freezer) error) error {
	group, err := m.group(s.id)
	if err != nil {
		return err
	}
	return do(group)
}

// reconnect lets PID 1 come back. A frozen one is let go on for it.
func (m *Manager) reconnect(ctx context.Context, s *sandbox) ([]pid1.Held, error) {
	r := s.kept()
	var spec specs.Spec
	if err := readJSON(m.paths.spec(s.id), &spec); err != nil {
		return nil, err
	}
	process, err := openKnown(r.PID, r.PIDBegan)
	if err != nil {
		return nil, err
	}
	s.update(func() { s.process, s.spec = process, &spec })
	s.listener, err = pid1.Listen(m.paths.init(s.id), int(r.HostIDBase+r.User.UID), int(r.HostIDBase+r.User.GID))
	if err != nil {
		return nil, err
	}
	if r.Paused {
		if err := m.withGroup(s, func(g freezer) error { return g.Thaw(ctx) }); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(m.createNested(ctx, s), m.readmit(ctx, s)); err != nil {
		return nil, err
	}
	m.republish(ctx, s)
	return m.connect(ctx, s, adoptTimeout)
}

// loadExecs goes on with the commands of s: with those that ended as they are
// kept, with those that PID 1 holds where they are. It returns the latter. One
// that neither knows of is lost.
func (m *Manager) loadExecs(s *sandbox, held []pid1.Held) (running []*execution, err error) {
	byNumber := map[uint32]pid1.Held{}
	for _, h := range held {
		byNumber[h.Exec.Number()] = h
		s.lastExec = max(s.lastExec, h.Exec.Number())
	}
	records, err := s.log.Load()
	var errs []error
	for n, r := range records {
		r.Number = n
		e, err := m.loadExec(s, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.update(func() { s.execs[r.Number], s.lastExec = e, max(s.lastExec, r.Number) })
		h, known := byNumber[r.Number]
		delete(byNumber, r.Number)
		switch {
		case r.Result != nil:
			if known { // the daemon ended between keeping the result and saying so
				errs = append(errs, closeAll(h.Stdin, h.Stdout, h.Stderr), h.Exec.Release())
			}
			s.passed(e)
		case known:
			e.take(h)
			running = append(running, e)
		default:
			e.record.Result = lostResult(s, e)
			s.passed(e)
		}
	}
	slices.SortFunc(s.past, func(a, b *execution) int { return cmp.Compare(a.number(), b.number()) })
	s.running = len(running)
	for _, h := range byNumber { // of which there is no record: nobody can ask for it
		errs = append(errs, disown(h))
	}
	return running, errors.Join(append(errs, err)...)
}

func (m *Manager) loadExec(s *sandbox, r execRecord) (*execution, error) {
	stdout, outErr := output.Open(m.paths.stdout(s.id, r.Number), r.OutputLimit)
	stderr, errErr := output.Open(m.paths.stderr(s.id, r.Number), r.OutputLimit)
	if err := errors.Join(outErr, errErr); err != nil {
		return nil, fmt.Errorf("output of command %d: %w", r.Number, err)
	}
	return newExecution(s, r, stdout, stderr), nil
}

// passed is for a command that had ended before this daemon.
func (s *sandbox) passed(e *execution) {
	e.state = ExecExited
	e.stdout.Finish()
	e.stderr.Finish()
	close(e.settled)
	close(e.done)
	close(e.kept)
	if e.number() != s.record.Main {
		s.past = append(s.past, e)
	}
}

// take goes on with a command that PID 1 holds.
func (e *execution) take(h pid1.Held) {
	e.proc, e.pid, e.stdin, e.state = h.Exec, h.Exec.PID, h.Stdin, ExecRunning
	e.inputEnd = h.Stdin == nil
	for _, stream := range []struct {
		store *output.Store
		pipe  *os.File
	}{{e.stdout, h.Stdout}, {e.stderr, h.Stderr}} {
		if stream.pipe == nil {
			stream.store.Finish()
			continue
		}
		e.fill(stream.store, stream.pipe)
	}
}

func lostResult(s *sandbox, e *execution) *Result {
	r := &Result{
		SandboxID: s.id, ExecID: number(e.number()), ExitCode: exitKilled, Signal: int(syscall.SIGKILL), Reason: ReasonLost,
		Source: "runtime", Network: string(s.kept().Network), Warnings: []string{"the daemon ended while the command was started or ended"},
	}
	r.StdoutBytes, _ = e.stdout.Total()
	r.StderrBytes, _ = e.stderr.Total()
	return r
}

func disown(h pid1.Held) error {
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	_, err := h.Exec.SignalAll(ctx, syscall.SIGKILL)
	if errors.Is(err, sbxerr.State) { // it has ended
		err = nil
	}
	return errors.Join(err, closeAll(h.Stdin, h.Stdout, h.Stderr), h.Exec.Release())
}
