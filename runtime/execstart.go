package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/pipes"
	"github.com/caisson-run/caisson/runtime/plan"
)

// startExec starts the planned command in s. From its record's writing on, a
// daemon that comes after this one finds it.
func (m *Manager) startExec(ctx context.Context, s *sandbox, p *plan.Command, detached bool) (*execution, error) {
	e, err := m.admitWithin(ctx, s, p, detached)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := m.beginExec(ctx, s, e, p); err != nil {
		err = s.orEnded(err)
		e.fail(err)
		d := events.Data{ExecID: number(e.number())}
		d.Fail(err)
		m.emit(ctx, s.kept(), events.ExecFailed, d)
		return nil, errors.Join(err, m.dropExec(s, e))
	}
	_ = failpoint.At("exec/started") // only to be killed at: the command runs
	e.mu.Lock()
	e.took = time.Since(begin)
	if e.record.Deadline == 0 && p.Timeout > 0 {
		e.record.Deadline = in(&p.Timeout)
	}
	e.mu.Unlock()
	go m.watch(context.WithoutCancel(ctx), e)
	return e, nil
}

// beginExec starts an admitted command.
func (h *host) beginExec(ctx context.Context, s *sandbox, e *execution, p *plan.Command) error {
	if p.Main {
		if err := h.admitMain(s, e); err != nil {
			return err
		}
	}
	if err := cmp.Or(failpoint.At("exec/recorded"), h.announceExec(ctx, s, e, p)); err != nil {
		return err
	}
	return h.launch(ctx, s, e, p)
}

// admitMain makes e, which s was still waiting for, the command that s is for.
func (h *host) admitMain(s *sandbox, e *execution) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != nil {
		return s.endedLocked()
	}
	s.record.Main = e.number()
	return h.completeLocked(s)
}

// admitWithin is admitExec within the quota of the caller of ctx.
func (m *Manager) admitWithin(ctx context.Context, s *sandbox, p *plan.Command, detached bool) (*execution, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	if g.Unbounded() { // whoever has no quota does not pay for the sum
		return m.admitExec(ctx, s, p, detached)
	}
	m.quotas.Lock() // two at once must not both be the last that fits
	defer m.quotas.Unlock()
	m.mu.Lock()
	err = g.CheckQuota(m.standingLocked(g), peer.Usage{Execs: 1})
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return m.admitExec(ctx, s, p, detached)
}

// admitExec takes a number for the command and makes it known, where the
// sandbox can run one.
func (h *host) admitExec(ctx context.Context, s *sandbox, p *plan.Command, detached bool) (*execution, error) {
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	defer h.emitHits(ctx, s, h.lookBeforeLocked(s)) // when s is no longer locked
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.takesLocked(p); err != nil {
		return nil, err
	}
	if s.running >= maxExecs {
		return nil, sbxerr.New(sbxerr.Busy, "runtime.exec", "sandbox %s runs %d commands, which is the most", s.record.Name, s.running)
	}
	n := s.lastExec + 1
	s.discard.SetLimit(discardRate(s.record.Limits.MilliCPU)) // which may have changed
	stdout, stderr, err := h.stores(output.Create, s, n, p.OutputLimit)
	if err != nil {
		return nil, err
	}
	e := newExecution(s, execRecord{
		Number: n, Args: p.Args, Stdin: p.Stdin, TTY: p.TTY != nil, Detached: detached,
		OutputLimit: p.OutputLimit, Timeout: p.Timeout, Began: now(), StartedAt: time.Now().Round(0),
	}, stdout, stderr)
	e.record.Caller, e.record.RequestID = events.Asked(ctx)
	e.refusedBefore, e.record.Counted = s.refused, s.tally.seen
	if !detached {
		e.readers, e.parked = 1, e.hold(AttachOptions{})
	}
	if p.Limits.Any() {
		e.record.Cgroup = "exec-" + number(n)
	}
	if !p.Main && !p.Limits.Any() {
		t, err := h.takeTagLocked(s)
		if err != nil {
			return nil, errors.Join(err, e.stdout.Close(), e.stderr.Close())
		}
		if t != nil {
			e.setTag(t)
			e.record.Tag = t.number
		}
	}
	if p.Main && !p.Limits.Any() {
		e.record.Used = h.usedSoFar(s)
	}
	if p.Timeout > 0 { // of the start too, in case nobody is left to see it
		e.record.Deadline = in(&p.Timeout)
	}
	if err := s.log.Put(n, e.record); err != nil {
		if t := e.tagged(); t != nil {
			s.tags.left = append(s.tags.left, t)
		}
		return nil, err
	}
	s.knowLocked(e)
	s.running++
	s.busyLocked()
	return e, nil
}

// usedSoFar is the CPU that the making of s took, of which nothing is its command's.
func (h *host) usedSoFar(s *sandbox) (use cgroups.CPUUse) {
	group, err := h.group(s.id)
	if err == nil {
		use, err = group.CPUUse()
	}
	if err != nil {
		h.log.Debug("read the use of CPU", "sandbox", s.id, "err", err)
	}
	return use
}

// knowLocked makes e one of the commands of s.
func (s *sandbox) knowLocked(e *execution) {
	n := e.number()
	s.execs[n] = e
	s.lastExec, s.newest = max(s.lastExec, n), max(s.newest, n)
}

// takesLocked refuses a command where the sandbox cannot run it. One that is being made
// takes that which it is for.
func (s *sandbox) takesLocked(p *plan.Command) error {
	if p.Main && s.state == StateCreating && s.ending == nil {
		return nil
	}
	return s.acceptsLocked()
}

// maxExecs bounds the commands that run in one sandbox at once: each costs the
// daemon its pipes.
const maxExecs = 256

// launch passes the command to PID 1.
func (h *host) launch(ctx context.Context, s *sandbox, e *execution, p *plan.Command) (err error) {
	if err := s.checkRlimits(p.Rlimits); err != nil {
		return err
	}
	streams, err := pipes.New(p.Stdin, p.TTY == nil, s.ownerOf(p))
	if err != nil {
		return err
	}
	cmd := pid1.Command{
		Number: e.number(), Args: p.Args, Env: p.Env, Cwd: p.Cwd, UID: p.User.UID, GID: p.User.GID, Groups: p.User.Groups,
		Stdin: streams.Inside[0], Stdout: streams.Inside[1], Stderr: streams.Inside[2],
		HeldStdin: streams.Stdin, HeldStdout: streams.Stdout, HeldStderr: streams.Stderr, HeldStaging: streams.Staging,
		Rlimits: p.Rlimits, Inputs: p.Inputs, Tag: s.tagOf(e),
	}
	if p.TTY != nil {
		cmd.TTY = &pid1.WinSize{Rows: p.TTY.Rows, Cols: p.TTY.Cols}
	}
	if p.Limits.Any() {
		cmd.Place = h.placer(s, e, p.Limits.Child())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.opts.Timeouts.Start,
		sbxerr.New(sbxerr.Init, "runtime.exec", "caisson-init did not start the command within %s", h.opts.Timeouts.Start))
	defer cancel()
	proc, err := s.init.Start(ctx, cmd)
	p.Inputs = nil
	err = errors.Join(err, streams.CloseInside())
	if err != nil {
		return errors.Join(err, streams.CloseOutside())
	}
	e.take(pid1.Held{Exec: proc, Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Staging: streams.Staging})
	return nil
}

// ownerOf is who the streams of a command belong to.
func (s *sandbox) ownerOf(p *plan.Command) *pipes.Owner {
	if p.TTY != nil {
		return nil
	}
	return &pipes.Owner{UID: int(s.block.Base + p.User.UID), GID: int(s.block.Base + p.User.GID)}
}

// placer puts the command into a cgroup of its own before it may run. pid is
// PID 1's word: the process is looked for among those of the sandbox's cgroup,
// so it can only be one of its own.
func (h *host) placer(s *sandbox, e *execution, limits cgroups.ChildLimits) func(context.Context, int) error {
	return func(_ context.Context, pid int) error {
		group, err := h.group(s.id)
		if err != nil {
			return err
		}
		host, err := cgroups.HostPID(group, pid)
		if err != nil {
			return err
		}
		child, err := group.NewChild(e.record.Cgroup, limits)
		if err != nil {
			return err
		}
		e.setGroup(child)
		return errors.Join(child.Add(host), failpoint.At("exec/placed"))
	}
}

// dropExec forgets a command that was never started.
func (h *host) dropExec(s *sandbox, e *execution) error {
	var errs []error
	if child := e.group(); child != nil {
		errs = append(errs, child.Remove(context.Background()))
	}
	h.sampleLimits(context.Background(), s)
	h.untag(s, e, false) // PID 1 may have begun
	errs = append(errs, h.forgetExec(s, e))
	failure := e.notStarted()
	s.mu.Lock()
	delete(s.execs, e.number())
	if s.record.Main == e.number() {
		s.unbegun = failure
	}
	s.running--
	close(e.done) // for whoever has seen it
	close(e.kept)
	s.idleLocked()
	s.mu.Unlock()
	s.rearm() // the alarm may have come while the command counted as one that runs
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("drop command %d of sandbox %s: %w", e.number(), s.id, err)
	}
	return nil
}
