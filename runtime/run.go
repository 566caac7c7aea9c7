package runtime

import (
	"context"
	"errors"
	"github.com/caisson-run/caisson/runtime/learn"
	"math"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// mainToCome is record.Main of a sandbox that is for one command, until that has its
// number.
const mainToCome = math.MaxUint32

// Run makes a sandbox, runs one command in it, and removes the sandbox. When
// it returns a result, every process of the sandbox has ended and all output
// was delivered; what is left of the sandbox on the host is removed right
// after, while the caller goes on, unless a snapshot is made of it or its caches are merged. When ctx ends, so does the command. With r.Keep
// the sandbox stays, and the command is one of [Manager.Exec] in it.
func (m *Manager) Run(ctx context.Context, r plan.Request, streams IO) (*Result, error) {
	defer m.Busy()()
	r.Exec.Stdin = r.Exec.Stdin || streams.Stdin != nil
	s, e, err := m.startMain(ctx, r, false, nil)
	if err != nil {
		return nil, err
	}
	if r.Keep {
		return m.attendExec(ctx, s, e, streams)
	}
	result, err := m.attendMain(ctx, s, e, streams)
	if kept := s.kept(); kept.Settings.SnapshotOnEnd != "" || kept.Preset.Merges(kept.Mounts) { // which the caller expects to find
		err = errors.Join(err, wait(ctx, s.gone))
	}
	return result, err
}

// Start makes a sandbox, starts one command in it, and returns. The sandbox
// and its output stay until they are removed.
func (m *Manager) Start(ctx context.Context, r plan.Request) (Info, error) {
	defer m.Busy()()
	if r.Learn {
		return Info{}, sbxerr.WithRemedy(sbxerr.Config, "runtime.learn",
			errors.New("a policy is learnt for a caller that waits"), "leave the command attached, or make a sandbox with --network open and ask for what it reached")
	}
	s, _, err := m.startMain(ctx, r, true, nil)
	if err != nil {
		return Info{}, err
	}
	return s.info(), nil
}

// startMain makes a sandbox for one command, or with r.Keep one that outlives it, and
// starts the command. made is called before that; nil does nothing. Where the command does
// not start, nothing stays.
func (m *Manager) startMain(ctx context.Context, r plan.Request, detached bool, made func(*sandbox) error) (*sandbox, *execution, error) {
	p, command, err := m.planMain(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	planned := p.ID
	s, err := m.obtain(ctx, p, nil, func(rec *record) {
		if !r.Keep {
			rec.Main, rec.MainArgs, rec.Detached, rec.OnIdle = mainToCome, command.Args, detached, ""
		}
	})
	if err != nil {
		return nil, nil, err
	}
	command.Env = plan.Renamed(command.Env, planned, s.id) // a ready one has an ID already
	if r.Learn {
		l := learn.New(m.opts.Traffic, s.id)
		l.Start()
		s.update(func() { s.learner = l })
	}
	if made != nil {
		err = made(s)
	}
	var e *execution
	if err == nil {
		e, err = m.startExec(ctx, s, command, detached)
	}
	if err != nil {
		s.learning().Stop()
		s.end(errCallerLeft)
		return nil, nil, errors.Join(err, m.vanish(ctx, s))
	}
	return s, e, nil
}

// vanish returns when s, which is to end, is gone: also where it ended for a reason
// for which it would stay.
func (m *Manager) vanish(ctx context.Context, s *sandbox) error {
	<-s.ended
	if s.retired() {
		return m.destroy(context.WithoutCancel(ctx), s)
	}
	<-s.gone
	return s.removeErr
}

// planMain plans a sandbox and the one command that it is for. A request without a command
// runs that of the image.
func (m *Manager) planMain(ctx context.Context, r plan.Request) (*plan.Sandbox, *plan.Command, error) {
	var learnErr error
	if r.Learn {
		r, learnErr = opened(r, m.settings().Profiles)
	}
	p, err := m.planFor(ctx, r.Create)
	if err == nil && len(r.Exec.Args) == 0 && r.Exec.Shell == "" {
		c := p.Image.Config.Config
		r.Exec.Args = slices.Concat(c.Entrypoint, c.Cmd)
	}
	if err := plan.JoinReasons(learnErr, err, r.Exec.Check()); err != nil {
		return nil, nil, err
	}
	lookup := func(name string) (plan.User, error) { return m.userIn(ctx, p.Image, name) }
	command, err := r.Exec.Command(p.Defaults(), lookup)
	if err != nil {
		return nil, nil, err
	}
	command.Main = !r.Keep
	return p, command, m.boundOutput(r.Exec, command)
}
