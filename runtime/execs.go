package runtime

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/seccomp"
)

// Exec runs a command in the sandbox that ref names and returns when it has
// ended and all of its output was delivered. When ctx ends, the caller is taken
// to have gone away: it can Attach again, and the command is ended if nobody
// does so within the daemon's grace.
func (m *Manager) Exec(ctx context.Context, ref string, r plan.ExecRequest, streams IO) (*Result, error) {
	defer m.Busy()()
	r.Stdin = r.Stdin || streams.Stdin != nil
	s, e, err := m.exec(ctx, ref, r, false)
	if err != nil {
		return nil, err
	}
	return m.attendExec(ctx, s, e, streams)
}

// attendExec passes the streams of a command on that was started for this caller, until the
// command has ended, or ctx.
func (m *Manager) attendExec(ctx context.Context, s *sandbox, e *execution, streams IO) (*Result, error) {
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	if streams.Stdin != nil {
		go m.sendGiven(ctx, e, streams.Stdin)
	}
	if streams.Started != nil {
		streams.Started(s.info(), e.info())
	}
	p := e.unpark()
	result, left, err := m.attend(ctx, e, p, streams)
	e.detach(p, left, m.attachGrace())
	return result, err
}

// StartExec starts a command in the background.
func (m *Manager) StartExec(ctx context.Context, ref string, r plan.ExecRequest) (ExecInfo, error) {
	defer m.Busy()()
	_, e, err := m.exec(ctx, ref, r, true)
	if err != nil {
		return ExecInfo{}, err
	}
	return e.info(), nil
}

func (m *Manager) exec(ctx context.Context, ref string, r plan.ExecRequest, detached bool) (*sandbox, *execution, error) {
	s, err := m.findToEnter(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	defer s.keeper.Awake(ctx)()
	rec, err := s.accepting()
	if err != nil {
		return nil, nil, err
	}
	p, err := r.Command(m.defaultsOf(rec), func(name string) (plan.User, error) { return m.userOf(ctx, rec, name) })
	if err != nil {
		return nil, nil, err
	}
	if err := m.boundOutput(r, p); err != nil {
		return nil, nil, err
	}
	e, err := m.startExec(ctx, s, p, detached)
	return s, e, err
}

// defaultsOf is what commands of a sandbox begin with, by its limits as they are now.
func (h *host) defaultsOf(rec record) plan.Defaults {
	filter, err := seccomp.Lookup(h.profileOf(rec).Seccomp)
	tmpfs, binds := plan.CreateRequest{Workspace: rec.Workspace, Mounts: rec.Mounts}.Targets()
	return plan.Defaults{Env: rec.Env, Cwd: rec.Cwd, User: rec.User, Limits: rec.Limits, Tmpfs: tmpfs, Binds: binds, Tracing: err == nil && filter.Allows("ptrace")}.Of(h.profileOf(rec))
}

// userOf resolves a user in the image that a sandbox was made of.
func (h *host) userOf(ctx context.Context, r record, name string) (plan.User, error) {
	img, err := h.store.GetImage(ctx, r.Image)
	if err == nil && img.Digest != r.ImageDigest {
		err = sbxerr.New(sbxerr.ImageNotFound, "runtime.user", "image %q is another one by now: name the user by its ids", r.Image)
	}
	if err != nil {
		return plan.User{}, err
	}
	return h.userIn(ctx, img, name)
}

func (h *host) userIn(ctx context.Context, img images.Stored, name string) (plan.User, error) {
	account, err := h.images.Account(ctx, img, name)
	u := account.User
	u.Groups = slices.Concat(u.Groups, h.slots())
	return u, err
}

// Attach continues the streams of a command where its reader stands, and
// returns as Exec does. It also serves a command that has ended.
func (m *Manager) Attach(ctx context.Context, ref, exec string, o AttachOptions, streams IO) (*Result, error) {
	defer m.Busy()()
	s, e, err := m.findExec(ctx, ref, exec)
	if err != nil {
		return nil, err
	}
	if err := o.check(e); err != nil {
		return nil, err
	}
	if streams.Started != nil {
		streams.Started(s.info(), e.info())
	}
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	p := e.attach(o)
	result, left, err := m.attend(ctx, e, p, streams)
	e.detach(p, left, m.attachGrace())
	return result, err
}

// check refuses a reader that claims to have had what was not written.
func (o AttachOptions) check(e *execution) error {
	for _, at := range []struct {
		stream string
		offset int64
		store  *output.Store
	}{{"stdout", o.StdoutOffset, e.stdout}, {"stderr", o.StderrOffset, e.stderr}} {
		if total, _ := at.store.Total(); at.offset < 0 || at.offset > total {
			return sbxerr.New(sbxerr.Config, "runtime.attach", "offset %d of %s: %d bytes were written so far", at.offset, at.stream, total)
		}
	}
	return nil
}

// findHeard is find for who asks for the commands of a sandbox. Of one of an earlier
// daemon that is given up, and never said which it has, it is not told that there
// are none.
func (m *Manager) findHeard(ctx context.Context, ref string) (*sandbox, error) {
	s, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ends := s.state == StateStopping || s.state == StateRemoving
	if ends && s.unheard {
		return nil, s.endedLocked()
	}
	return s, nil
}

func (m *Manager) findExec(ctx context.Context, ref, exec string) (*sandbox, *execution, error) {
	s, err := m.findHeard(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if exec == "" {
		exec = s.onlyCommand()
	}
	e, err := s.execution(exec)
	return s, e, err
}

// onlyCommand is the ID of the one command that ran in a sandbox that is for none; empty
// where that is not so.
func (s *sandbox) onlyCommand() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Main == 0 && s.lastExec == 1 {
		return number(1)
	}
	return ""
}

// Execs lists the commands of a sandbox, oldest first: those that run, and as
// many of those that ended as are kept.
func (m *Manager) Execs(ctx context.Context, ref string) ([]ExecInfo, error) {
	s, err := m.findHeard(ctx, ref)
	if err != nil {
		return nil, err
	}
	list := []ExecInfo{}
	for _, e := range s.executions() {
		list = append(list, e.info())
	}
	return list, nil
}

// WaitExec returns when a command has ended.
func (m *Manager) WaitExec(ctx context.Context, ref, exec string) (ExecInfo, error) {
	defer m.Busy()()
	s, e, err := m.findExec(ctx, ref, exec)
	if err != nil {
		return ExecInfo{}, err
	}
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	if err := cmp.Or(e.wait(ctx), e.notStarted()); err != nil {
		return ExecInfo{}, err
	}
	return e.info(), nil
}

// SignalExec sends a signal to a command, once it runs. One that has ended is an
// error, unless All reaches what it left behind with its output open. One that is frozen
// is an error, too: nobody is there to deliver the signal.
func (m *Manager) SignalExec(ctx context.Context, ref, exec string, r SignalRequest) error {
	s, e, err := m.findExec(ctx, ref, exec)
	if err != nil {
		return err
	}
	if e.isDone() && !r.All {
		return sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.signal", "command %s of sandbox %s has ended", exec, ref))
	}
	defer s.keeper.Awake(ctx)()
	if err := s.checkThawed(); err != nil {
		return err
	}
	proc, err := e.begun(ctx)
	if err != nil {
		return err
	}
	if r.All {
		err = m.signalAll(ctx, e, r.Signal)
	} else {
		err = proc.Signal(ctx, r.Signal)
	}
	if err != nil {
		return err
	}
	return m.opts.Events.Confirm(ctx, s.kept().event(events.ExecSignaled, events.Data{ExecID: number(e.number()), Signal: int(r.Signal)}))
}

// Logs copies the kept output of a command of the sandbox that ref names. With
// Follow it goes on until no process can write to it any more. With Since a writer is a
// [Placer]: it begins later than at its offset.
func (m *Manager) Logs(ctx context.Context, ref string, o LogOptions, stdout, stderr io.Writer) error {
	const op = "runtime.logs"
	defer m.Busy()()
	s, e, err := m.findExec(ctx, ref, o.Exec)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"", "stdout", "stderr"}, o.Stream) {
		return sbxerr.New(sbxerr.Config, op, "stream %q is none of stdout, stderr", sbxerr.Clip(o.Stream))
	}
	if err := (AttachOptions{o.StdoutOffset, o.StderrOffset}).check(e); err != nil {
		return err
	}
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer e.read()()
	var wg sync.WaitGroup
	var errs [2]error
	for i, from := range []struct {
		name   string
		store  *output.Store
		to     io.Writer
		offset int64
	}{{"stdout", e.stdout, stdout, o.StdoutOffset}, {"stderr", e.stderr, stderr, o.StderrOffset}} {
		if o.Stream == "" || o.Stream == from.name {
			wg.Go(func() {
				m.beside(cancel, func() {
					if !o.Since.IsZero() {
						from.offset = max(from.offset, from.store.Since(o.Since))
					}
					_, errs[i] = from.store.FollowUntil(ctx, from.to, from.offset, o.Follow, o.Until)
				})
			})
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return sbxerr.Wrap(sbxerr.Canceled, op, context.Cause(ctx))
	}
	if err := e.notStarted(); err != nil {
		return err
	}
	err = errors.Join(errs[:]...)
	if errors.Is(err, sbxerr.Limits) { // which the store says better: nothing is broken
		return err
	}
	return sbxerr.Wrap(sbxerr.StateDir, op, err)
}

func (s *sandbox) closeExecs() error {
	var errs []error
	for _, e := range s.executions() {
		errs = append(errs, e.close())
	}
	return errors.Join(errs...)
}

// executions lists the commands of s, oldest first.
func (s *sandbox) executions() []*execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*execution, 0, len(s.execs))
	for _, e := range s.execs {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *execution) int { return int(a.number()) - int(b.number()) })
	return list
}

// execution finds a command by its ID; the empty one is that which the sandbox
// is for.
func (s *sandbox) execution(id string) (*execution, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case id != "" || s.record.Main == 0:
	case s.record.Main == mainToCome:
		return nil, s.endedLocked()
	default:
		id = number(s.record.Main)
	}
	for n, e := range s.execs {
		if number(n) == id {
			return e, nil
		}
	}
	if id == "" {
		return nil, sbxerr.New(sbxerr.ExecNotFound, "runtime.find", "sandbox %s is for no single command: name one", s.record.Name)
	}
	if n, err := strconv.ParseUint(id, 10, 32); err == nil && 0 < n && n <= uint64(s.lastExec) && number(uint32(n)) == id {
		return nil, sbxerr.New(sbxerr.ExecForgotten, "runtime.find", "command %s of sandbox %s has ended, and its result is no longer kept", id, s.record.Name)
	}
	return nil, sbxerr.New(sbxerr.ExecNotFound, "runtime.find", "sandbox %s has no command %q", s.record.Name, sbxerr.Clip(id))
}

// isMain reports whether s is for e alone.
func (s *sandbox) isMain(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Main == e.number()
}
