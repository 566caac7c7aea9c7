package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/ports"
)

// Update changes limits, times, labels and the policy of a live sandbox: all that is named,
// or nothing. The policies of its children follow.
func (m *Manager) Update(ctx context.Context, ref string, r UpdateRequest) (Info, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	if err := m.change(ctx, s, r); err != nil {
		return Info{}, err
	}
	var errBelow error
	if r.aboutNetwork() {
		errBelow = m.followBelow(context.WithoutCancel(ctx), s) // also where the caller leaves meanwhile
	}
	return s.info(), errors.Join(m.confirmUpdate(ctx, s), errBelow)
}

// change is Update of s alone.
func (m *Manager) change(ctx context.Context, s *sandbox, r UpdateRequest) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	rec := s.kept()
	if state := s.info().State; state != StateRunning && state != StatePaused {
		return notNow("runtime.update", rec.Name, state)
	}
	next, err := r.apply(rec)
	if err != nil {
		return err
	}
	if next, err = m.changeNetwork(next, r); err != nil {
		return err
	}
	if r.Publish != nil {
		if next.Ports, err = ports.WithClients(rec.Ports, r.Publish.Rules); err != nil {
			return err
		}
	}
	if l := r.Limits; l != nil && (l.IoReadBps != nil || l.IoWriteBps != nil) {
		if next.Limits.Disks, err = m.disksOf(next); err != nil {
			return err
		}
	}
	if err := s.checkProcesses(rec.Limits.PIDs, next.Limits.PIDs); err != nil {
		return err
	}
	if err := m.permitUpdate(ctx, s, next, r.TTL); err != nil {
		return err
	}
	err = m.updateStages(ctx, s, m.stages, &change{from: rec, to: next})
	s.update(func() {
		s.record.Changing = nil
		if err != nil {
			return
		}
		s.record.Limits, s.record.Network, s.record.Asked, s.record.Policy, s.record.Ports = next.Limits, next.Network, next.Asked, next.Policy, next.Ports
		s.record.Labels, s.record.Expires, s.record.IdleTimeout = next.Labels, next.Expires, next.IdleTimeout
		if s.record.OnIdle != next.OnIdle { // which commands count changes with it
			s.record.OnIdle = next.OnIdle
			s.busyLocked()
			s.idleLocked()
		}
		s.digest, s.stale = "", true
	})
	m.keepRecord(s)
	if err == nil {
		s.rearm()
	}
	return err
}

// checkProcesses refuses more processes than the resource limit allows that those
// of s got at its creation, which cannot be raised.
func (s *sandbox) checkProcesses(from, to int64) error {
	s.mu.Lock()
	most := oci.MaxPIDs(s.spec.Process.Rlimits)
	s.mu.Unlock()
	if to <= from || uint64(to) <= most {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Limits, "runtime.update",
		fmt.Errorf("pids %d is above %d: the RLIMIT_NPROC of a live sandbox is that of its creation", to, most),
		"make a sandbox with more --pids; a live one can be given fewer, and as many as before again")
}

// permitUpdate checks that the caller may give s what it would get, with the time to
// live that was asked for. What it gets counts from here on.
func (m *Manager) permitUpdate(ctx context.Context, s *sandbox, next record, ttl *time.Duration) error {
	have := s.kept()
	g, err := m.grant(ctx)
	if err != nil {
		return err
	}
	least := time.Duration(1)
	var later *time.Duration // an end that is later than before
	switch {
	case next.Expires == have.Expires:
		ttl = &least // it was granted: what is left of it is not asked for again
	case next.Expires == 0:
		ttl = nil // without end
	case have.Expires == 0 || next.Expires > have.Expires:
		later = ttl
	}
	var opened []Port // to others than before
	if !slices.Equal(next.Ports, have.Ports) {
		opened = next.Ports
	}
	if err := errors.Join(g.CheckLimits(next.Limits.Peer(), ttl), g.CheckLife(have.age(), later), checkPublish(g, opened), g.CheckNetwork(string(next.Network), !reflect.DeepEqual(next.Asked, have.Asked))); err != nil {
		return err
	}
	more := peer.Usage{
		MemoryBytes: max(0, next.Limits.MemoryBytes-have.Limits.MemoryBytes),
		MilliCPU:    max(0, next.Limits.MilliCPU-have.Limits.MilliCPU),
		PIDs:        max(0, next.Limits.PIDs-have.Limits.PIDs),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := g.CheckQuota(m.standingLocked(g), more); err != nil {
		return err
	}
	if next.Limits != have.Limits {
		s.update(func() { s.record.Changing = &next.Limits })
	}
	return nil
}

// apply returns what rec would be after r.
func (r UpdateRequest) apply(rec record) (record, error) {
	(*settings.Limits)(&rec.Limits).Override(r.Limits)
	errs := []error{settings.CheckZero(r.Limits, true), rec.Limits.Validate()}
	for name, d := range map[string]*time.Duration{"ttl": r.TTL, "idle timeout": r.IdleTimeout} {
		if d != nil && (*d < 0 || *d > plan.MaxTimeout) {
			errs = append(errs, plan.Invalid("%s %s: give %s, such as 30m, or 0 for never", name, *d, plan.AtMostTimeout))
		}
	}
	if r.TTL != nil {
		rec.Expires = in(r.TTL)
	}
	plan.Override(&rec.IdleTimeout, r.IdleTimeout)
	plan.Override(&rec.OnIdle, r.OnIdle)
	if r.OnIdle != nil || rec.IdleTimeout > 0 {
		errs = append(errs, plan.CheckIdle(rec.OnIdle, rec.IdleTimeout))
	}
	errs = append(errs, plan.AtMost(len(r.Labels), 2*plan.MaxLabels, "labels")) // those that there are can be taken away at once
	rec.Labels = maps.Clone(rec.Labels)
	for k, v := range r.Labels {
		if rec.Labels == nil {
			rec.Labels = map[string]string{}
		}
		if rec.Labels[k] = v; v == "" {
			delete(rec.Labels, k)
		}
	}
	if err := errors.Join(append(errs, plan.CheckLabels(rec.Labels))...); err != nil {
		return record{}, sbxerr.Wrap(plan.CodeOf(err), "runtime.update", err)
	}
	return rec, nil
}

// updateLimits sets the limits of s. Those of a sandbox in use are kept before, for a daemon
// that finds the change half done; change settles them.
func (h *host) updateLimits(_ context.Context, s *sandbox, c *change) (undo func() error, err error) {
	from, to := c.from.Limits, c.to.Limits
	if from == to {
		return nil, nil
	}
	if c.plan == nil {
		s.update(func() { s.record.Changing = &to })
		h.keepRecord(s)
	}
	if err := h.setLimits(s, from, to); err != nil {
		return nil, err
	}
	return func() error { return h.setLimits(s, to, from) }, nil
}

// noteChange keeps the limits that change sets, for a daemon that finds it half done.
func (h *host) noteChange(s *sandbox, to plan.Limits, change func() error) error {
	s.update(func() { s.record.Changing = &to })
	h.keepRecord(s)
	err := change()
	s.update(func() {
		s.record.Changing = nil
		if err == nil {
			s.record.Limits = to
		}
	})
	h.keepRecord(s)
	return err
}

// finishChange completes a change of limits that an earlier daemon began, or
// takes it back where the host does not allow it.
func (h *host) finishChange(s *sandbox) error {
	r := s.kept()
	if r.Changing == nil {
		return nil
	}
	group, err := h.group(s.id)
	if err != nil {
		return err
	}
	limits := *r.Changing
	if err := group.Set(limits.Cgroup()); err != nil {
		limits = r.Limits
		if back := group.Set(limits.Cgroup()); back != nil {
			return errors.Join(err, back)
		}
	}
	s.update(func() { s.record.Limits, s.record.Changing = limits, nil })
	h.keepRecord(s)
	return nil
}

// setLimits changes the cgroup of a live sandbox.
func (h *host) setLimits(s *sandbox, from, to plan.Limits) error {
	if from == to {
		return nil
	}
	group, err := h.group(s.id)
	if err != nil {
		return err
	}
	err = group.Change(from.Cgroup(), to.Cgroup())
	if errors.Is(err, sbxerr.State) {
		return errInUse(from, to)
	}
	return err
}

// errInUse refuses limits, lower than from, into which what is in use does not fit.
func errInUse(from, l plan.Limits) error {
	var lower []string
	if l.MemoryBytes < from.MemoryBytes {
		lower = append(lower, fmt.Sprintf("memory %d bytes", l.MemoryBytes))
	}
	if l.PIDs < from.PIDs {
		lower = append(lower, fmt.Sprintf("pids %d", l.PIDs))
	}
	return sbxerr.WithRemedy(sbxerr.State, "runtime.update", fmt.Errorf("more is in use than %s", strings.Join(lower, " or ")),
		"end what uses it first, or ask for more; the limits are as they were")
}
