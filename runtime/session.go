package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/sbxerr"
)

// Create makes a sandbox that lives until it is removed, its time is over, or
// it was idle for too long.
func (m *Manager) Create(ctx context.Context, r CreateRequest) (Info, error) {
	defer m.Busy()()
	for {
		s, err := m.ensured(ctx, r)
		if err == nil && s == nil {
			s, err = m.create(ctx, r)
		}
		if err == nil {
			return s.info(), nil
		}
		// Another request for the same was faster: it is found now, or it failed.
		if !errors.Is(err, errMeant) {
			return Info{}, err
		}
	}
}

func (m *Manager) create(ctx context.Context, r CreateRequest) (*sandbox, error) {
	p, err := m.planFor(ctx, r)
	if err != nil {
		return nil, err
	}
	return m.obtain(ctx, p, nil)
}

// ensured returns the sandbox that r asks for where there is one: by its key, or
// by its name where that is to be ensured. One that is being made is waited for.
func (m *Manager) ensured(ctx context.Context, r CreateRequest) (*sandbox, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	for {
		s := m.match(g, r)
		if s == nil {
			return nil, nil
		}
		have := s.settled()
		if !r.means(have) { // it was ready in a pool, and could not be made what was asked for
			continue
		}
		if err := r.differs(have, g); err != nil {
			return nil, err
		}
		switch state := s.info().State; state {
		case StateRunning, StatePaused:
			return s, nil
		case StateCreating, StateAdopting:
			if err := wait(ctx, s.made); err != nil {
				return nil, err
			}
		default:
			return nil, sbxerr.New(sbxerr.State, "runtime.create", "sandbox %s is %s: remove it first", have.Name, state)
		}
	}
}

// settled returns the record of s when nobody is changing it.
func (s *sandbox) settled() record {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.kept()
}

// match finds the sandbox that a repeated request means.
func (m *Manager) match(g peer.Grant, r CreateRequest) *sandbox {
	for _, s := range m.all() {
		if s.identity().of(g) && r.means(s.kept()) { // what another made is not what the caller asked for before
			return s
		}
	}
	return nil
}

// means reports whether r, if it is a repeated request, is for the sandbox of have.
func (r CreateRequest) means(have record) bool {
	return (r.Key != "" && have.Key == r.Key) || (r.Ensure && have.Name == r.Name)
}

// differs says which settings of a sandbox, as it was created, are not those of r:
// what Update changed since does not count, so that a script can run again. Who
// asks for what g says anyway asks for no other, and neither does a record of an
// older daemon, which kept that with the request.
func (r CreateRequest) differs(rec record, g peer.Grant) error {
	have := rec.Settings.granted(g)
	r = r.granted(g)
	have.Ensure, have.Key = r.Ensure, r.Key // ways to ask, not settings
	names := differences("", reflect.ValueOf(normal(r)), reflect.ValueOf(normal(have)))
	if len(names) == 0 {
		return nil
	}
	return sbxerr.New(sbxerr.Exists, "runtime.create", "sandbox %s was made with other settings: %s", rec.Name, strings.Join(names, ", "))
}

// differences names the fields of two of a kind that are not alike, as the API
// spells them: limits one by one.
func differences(prefix string, a, b reflect.Value) (names []string) {
	for i := range a.NumField() {
		name := prefix + strings.ToLower(wordEnd.ReplaceAllString(a.Type().Field(i).Name, "${1}_${2}"))
		switch x, y := a.Field(i), b.Field(i); {
		case reflect.DeepEqual(x.Interface(), y.Interface()):
		case x.Kind() == reflect.Struct:
			names = append(names, differences(name+".", x, y)...)
		default:
			names = append(names, name)
		}
	}
	return names
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// normal is r with the several ways to say nothing made one.
func normal(r CreateRequest) CreateRequest {
	if len(r.Env) == 0 {
		r.Env = nil
	}
	if len(r.Allow) == 0 {
		r.Allow = nil
	}
	if len(r.Deny) == 0 {
		r.Deny = nil
	}
	if len(r.Publish) == 0 {
		r.Publish = nil
	}
	if len(r.Expose) == 0 {
		r.Expose = nil
	}
	if len(r.Links) == 0 {
		r.Links = nil
	}
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	return r
}

// Update changes limits, times and labels of a live sandbox: all that is named,
// or nothing.
func (m *Manager) Update(ctx context.Context, ref string, r UpdateRequest) (Info, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	rec := s.kept()
	if state := s.info().State; state != StateRunning && state != StatePaused {
		return Info{}, sbxerr.New(sbxerr.State, "runtime.update", "sandbox %s is %s", rec.Name, state)
	}
	next, err := r.apply(rec)
	if err != nil {
		return Info{}, err
	}
	if next, err = m.changeNetwork(next, r); err != nil {
		return Info{}, err
	}
	if err := s.checkProcesses(rec.Limits.PIDs, next.Limits.PIDs); err != nil {
		return Info{}, err
	}
	if err := m.permitUpdate(ctx, s, next, r.TTL); err != nil {
		return Info{}, err
	}
	if err := m.changeLimits(s, rec.Limits, next.Limits); err != nil {
		return Info{}, err
	}
	if err := m.setPolicy(ctx, s, rec.Policy, next.Policy); err != nil {
		return Info{}, errors.Join(err, m.changeLimits(s, next.Limits, rec.Limits))
	}
	s.update(func() {
		s.record.Network, s.record.Asked, s.record.Policy = next.Network, next.Asked, next.Policy
		s.record.Labels, s.record.Expires, s.record.IdleTimeout = next.Labels, next.Expires, next.IdleTimeout
	})
	m.keepRecord(s)
	s.rearm()
	return s.info(), nil
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
	switch next.Expires {
	case have.Expires:
		ttl = new(time.Duration) // it was granted: what is left of it is not asked for again
	case 0:
		ttl = nil // without end
	}
	if err := errors.Join(g.CheckLimits(next.Limits.peer(), ttl), g.CheckNetwork(string(next.Network), !reflect.DeepEqual(next.Asked, have.Asked))); err != nil {
		return err
	}
	more := peer.Usage{
		MemoryBytes: max(0, next.Limits.MemoryBytes-have.Limits.MemoryBytes),
		MilliCPU:    max(0, next.Limits.MilliCPU-have.Limits.MilliCPU),
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
	set(&rec.Limits.MemoryBytes, r.MemoryBytes)
	set(&rec.Limits.MilliCPU, r.MilliCPU)
	set(&rec.Limits.PIDs, r.PIDs)
	errs := []error{rec.Limits.validate()}
	for name, d := range map[string]*time.Duration{"ttl": r.TTL, "idle timeout": r.IdleTimeout} {
		if d != nil && (*d < 0 || *d > maxTimeout) {
			errs = append(errs, invalid("%s %s: give %s, such as 30m, or 0 for never", name, *d, atMostTimeout))
		}
	}
	if r.TTL != nil {
		rec.Expires = in(r.TTL)
	}
	set(&rec.IdleTimeout, r.IdleTimeout)
	errs = append(errs, atMost(len(r.Labels), 2*maxLabels, "labels")) // those that there are can be taken away at once
	rec.Labels = maps.Clone(rec.Labels)
	for k, v := range r.Labels {
		if rec.Labels == nil {
			rec.Labels = map[string]string{}
		}
		if rec.Labels[k] = v; v == "" {
			delete(rec.Labels, k)
		}
	}
	if err := errors.Join(append(errs, checkLabels(rec.Labels))...); err != nil {
		return record{}, sbxerr.Wrap(codeOf(err), "runtime.update", err)
	}
	return rec, nil
}

// changeLimits sets the limits of a sandbox that is in use. What they are to be
// is kept before, as a daemon that comes after this one compares them. What they
// are counts until they are others.
func (m *Manager) changeLimits(s *sandbox, from, to Limits) error {
	if from == to {
		return nil
	}
	s.update(func() { s.record.Changing = &to })
	m.keepRecord(s)
	err := errors.Join(m.setLimits(s, from, to), failpoint("update/limits"))
	s.update(func() {
		s.record.Changing = nil
		if err == nil {
			s.record.Limits = to
		}
	})
	m.keepRecord(s)
	return err
}

// finishChange completes a change of limits that an earlier daemon began, or
// takes it back where the host does not allow it.
func (m *Manager) finishChange(s *sandbox) error {
	r := s.kept()
	if r.Changing == nil {
		return nil
	}
	group, err := m.group(s.id)
	if err != nil {
		return err
	}
	limits := *r.Changing
	if err := group.Set(limits.cgroup()); err != nil {
		limits = r.Limits
		if back := group.Set(limits.cgroup()); back != nil {
			return errors.Join(err, back)
		}
	}
	s.update(func() { s.record.Limits, s.record.Changing = limits, nil })
	m.keepRecord(s)
	return nil
}

// setLimits changes the cgroup of a live sandbox.
func (m *Manager) setLimits(s *sandbox, from, to Limits) error {
	if from == to {
		return nil
	}
	group, err := m.group(s.id)
	if err != nil {
		return err
	}
	return group.Change(from.cgroup(), to.cgroup())
}

// Pause freezes all processes of a sandbox.
func (m *Manager) Pause(ctx context.Context, ref string) (Info, error) {
	return m.freeze(ctx, ref, StateRunning, StatePaused)
}

// Resume lets the processes of a paused sandbox go on.
func (m *Manager) Resume(ctx context.Context, ref string) (Info, error) {
	return m.freeze(ctx, ref, StatePaused, StateRunning)
}

func (m *Manager) freeze(ctx context.Context, ref string, from, to State) (Info, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	switch state := s.info().State; {
	case state == to:
		return s.info(), nil
	case state != from:
		return Info{}, sbxerr.New(sbxerr.State, "runtime.pause", "sandbox %s is %s", s.kept().Name, state)
	}
	group, err := m.group(s.id)
	if err != nil {
		return Info{}, err
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	if to == StatePaused { // first, so that no command is asked for from a frozen PID 1, nor by a daemon that comes after this one
		s.setPaused(true)
		m.keepRecord(s)
		err = errors.Join(group.Freeze(ctx), failpoint("pause/frozen"))
	} else {
		err = errors.Join(group.Thaw(ctx), failpoint("resume/thawed"))
	}
	if err == nil {
		s.setPaused(to == StatePaused)
	} else {
		s.setPaused(from == StatePaused)
	}
	m.keepRecord(s)
	return s.info(), s.orEnded(err)
}

func (s *sandbox) setPaused(paused bool) {
	s.init.SetFrozen(paused)
	s.update(func() {
		s.record.Paused = paused
		switch {
		case paused && s.state == StateRunning:
			s.state = StatePaused
		case !paused && s.state == StatePaused:
			s.state = StateRunning
		}
	})
}

// Stop ends all processes of a sandbox: TERM to its commands, and KILL to all
// that is left after the grace. Nil is the daemon's grace. What the commands
// wrote stays until Remove. One that has ended is no error. Of several stops the
// one whose grace is over first counts.
func (m *Manager) Stop(ctx context.Context, ref string, grace *time.Duration) (Info, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	wait := m.opts.StopGrace
	set(&wait, grace)
	if wait < 0 || wait > maxTimeout {
		return Info{}, invalid("grace %s: give %s, such as 10s", wait, atMostTimeout)
	}
	go m.beside(s.end, func() { m.stop(context.WithoutCancel(ctx), s, wait) })
	select {
	case <-s.ended:
		return s.info(), nil
	case <-ctx.Done():
		return Info{}, sbxerr.Wrap(sbxerr.Canceled, "runtime.stop", context.Cause(ctx))
	}
}

// stop ends s, after a grace for its commands which a caller that leaves does not
// cut short. Whatever happens, s ends: one that is stopping has no other way on. It
// is left to another stop where that ends s no later.
func (m *Manager) stop(ctx context.Context, s *sandbox, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if s.beginStop() {
		if !s.leadStop(ctx, cancel) {
			return
		}
		m.askToEnd(ctx, s)
		if errors.Is(ctx.Err(), context.Canceled) { // by one with less grace
			return
		}
	}
	s.end(ErrStopped)
}

// leadStop makes a stop the only one of s, and reports whether it is: not where one
// is under way that ends s no later. So those whose callers leave do not add up.
func (s *sandbox) leadStop(ctx context.Context, cancel context.CancelFunc) bool {
	by, _ := ctx.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.yieldStop != nil {
		if !by.Before(s.stopBy) {
			return false
		}
		s.yieldStop()
	}
	s.stopBy, s.yieldStop = by, cancel
	return true
}

// beginStop lets no more commands in, and reports whether those that there are can
// be asked to end.
func (s *sandbox) beginStop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateRunning {
		s.state = StateStopping
	}
	return s.state == StateStopping && s.ending == nil
}

// askToEnd sends TERM to every command, to one that is being started once it runs,
// and waits for their end, no longer than until ctx ends or s is to end at once.
func (m *Manager) askToEnd(ctx context.Context, s *sandbox) {
	running := slices.DeleteFunc(s.executions(), func(e *execution) bool { return e.isDone() })
	for _, e := range running {
		go m.beside(s.end, func() { m.signal(ctx, e, syscall.SIGTERM) })
	}
	for _, e := range running {
		select {
		case <-e.done:
		case <-ctx.Done():
			return
		case <-s.asked:
			return
		}
	}
}

// Wait returns when the sandbox has ended.
func (m *Manager) Wait(ctx context.Context, ref string) (Info, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	err = wait(ctx, s.ended)
	return s.info(), err
}
