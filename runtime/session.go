package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Create makes a sandbox that lives until it is removed, its time is over, or
// it was idle for too long.
func (m *Manager) Create(ctx context.Context, r plan.CreateRequest) (Info, error) {
	defer m.Busy()()
	replaced := ""
	for {
		s, err := m.ensured(ctx, r)
		if err == nil && s != nil {
			info := s.info()
			if img, err := m.images.Find(ctx, info.Image); err == nil {
				info.Warnings = append(slices.Clone(info.Warnings), replacedImage(s.kept(), img)...)
			}
			return info, nil
		}
		if err == nil {
			s, err = m.create(ctx, r, &replaced)
		}
		if err == nil {
			info := s.info()
			info.Replaced = replaced
			return info, nil
		}
		// Another request for the same was faster: it is found now, or it failed.
		if !errors.Is(err, errMeant) {
			return Info{}, err
		}
	}
}

// replacedImage says that the name of a sandbox's image means another one by now.
func replacedImage(have record, now images.Stored) []string {
	if have.ImageDigest == now.Digest {
		return nil
	}
	return []string{fmt.Sprintf("the image %s was replaced since the sandbox was made: the sandbox has %s, the name means %s now; --replace makes a sandbox of it",
		have.Image, have.ImageDigest, now.Digest)}
}

// create makes what r asks for, and before that removes what it replaces. A request that is
// refused removes nothing.
func (m *Manager) create(ctx context.Context, r plan.CreateRequest, replaced *string) (*sandbox, error) {
	p, err := m.planFor(ctx, r)
	if err != nil {
		return nil, err
	}
	if old := m.replacedBy(p.Grant, r); old != nil {
		s, err := m.replace(ctx, old, p)
		if err == nil {
			*replaced = old.id
		}
		return s, err
	}
	return m.obtain(ctx, p, nil, nil)
}

// replacedBy finds the caller's sandbox that r takes the name of: any one with Replace, and
// with Ensure one that has ended, or is about to.
func (m *Manager) replacedBy(g peer.Grant, r plan.CreateRequest) *sandbox {
	if !r.Replace && !r.Ensure {
		return nil
	}
	for _, s := range m.all() {
		if s.identity().of(g) && s.identity().name == r.Name && (r.Replace || s.info().State.over()) {
			return s
		}
	}
	return nil
}

// ensured returns the sandbox that r asks for where there is one: by its key, or
// by its name where that is to be ensured. One that is being made is waited for.
func (m *Manager) ensured(ctx context.Context, r plan.CreateRequest) (*sandbox, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	for {
		s := m.match(g, r)
		if s == nil {
			return nil, nil
		}
		have := s.keptAtRest()
		if !means(r, have) { // it was ready in a pool, and could not be made what was asked for
			continue
		}
		state := s.info().State
		if r.Ensure && have.Name == r.Name && !have.forCommand() && state.over() {
			return nil, nil
		}
		if err := differs(r, have, g); err != nil {
			return nil, err
		}
		switch state {
		case StateRunning, StatePaused:
			return s, nil
		case StateCreating, StateAdopting:
			if err := wait(ctx, s.made); err != nil {
				return nil, err
			}
		default:
			return nil, sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.create", "sandbox %s is %s: remove it first", have.Name, state))
		}
	}
}

// keptAtRest returns the record of s when nobody is changing it.
func (s *sandbox) keptAtRest() record {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.kept()
}

// match finds the sandbox that a repeated request means.
func (m *Manager) match(g peer.Grant, r plan.CreateRequest) *sandbox {
	for _, s := range m.all() {
		if s.identity().of(g) && means(r, s.kept()) { // what another made is not what the caller asked for before
			return s
		}
	}
	return nil
}

// means reports whether r, if it is a repeated request, is for the sandbox of have.
func means(r plan.CreateRequest, have record) bool {
	return (r.Key != "" && have.Key == r.Key) || (r.Ensure && have.Name == r.Name)
}

// differs says which settings of a sandbox, as it was created, are not those of r:
// what Update changed since does not count, so that a script can run again. Who
// asks for what g says anyway asks for no other, and neither does a record of an
// older daemon, which kept that with the request.
func differs(r plan.CreateRequest, rec record, g peer.Grant) error {
	have := rec.Settings.Granted(g)
	r = r.Granted(g)
	have.Ensure, have.Replace, have.Key = r.Ensure, r.Replace, r.Key // ways to ask, not settings
	names := plan.Differences(r, have)
	if len(names) == 0 {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Exists, "runtime.create", fmt.Errorf("sandbox %s was made with other settings: %s", rec.Name, strings.Join(names, ", ")),
		fmt.Sprintf("ask for the settings that it has, choose another name, or end it (its files go): caisson rm --force %s, or give --replace instead of --ensure", rec.Name))
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
		if s.kept().Asleep {
			s.update(func() { s.record.Asleep = false }) // from here on it is paused for its caller
			m.keepRecord(s)
		}
		return s.info(), nil
	case state != from:
		return Info{}, notNow("runtime.pause", s.kept().Name, state)
	}
	err = m.setFrozen(ctx, s, to, "")
	return s.info(), s.orEnded(err)
}

// setFrozen makes s paused or running, for a reason; empty: somebody asked for it. The caller
// holds changing.
func (h *host) setFrozen(ctx context.Context, s *sandbox, to State, reason string) error {
	group, err := h.group(s.id)
	if err != nil {
		return err
	}
	if to == StateRunning { // it cannot be taken back: who leaves does not cut it short
		ctx = context.WithoutCancel(ctx)
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	if to == StatePaused { // first, so that no command is asked for from a frozen PID 1, nor by a daemon that comes after this one
		h.setPaused(s, true, reason != "")
		h.keepRecord(s)
		err = errors.Join(group.Freeze(ctx), failpoint.At("pause/frozen"))
	} else {
		err = errors.Join(thaw(ctx, group), failpoint.At("resume/thawed"))
	}
	paused := (to == StatePaused) == (err == nil)
	h.setPaused(s, paused, paused && s.kept().Asleep)
	if err == nil {
		h.emit(ctx, s.kept(), map[State]events.Type{StatePaused: events.SandboxPaused, StateRunning: events.SandboxResumed}[to], events.Data{Reason: reason})
	}
	h.keepRecord(s)
	return err
}

// thaw lets a group go on. Whether it does is what counts, not whether that took long.
func thaw(ctx context.Context, g *cgroups.Group) error {
	err := g.Thaw(ctx)
	if err == nil {
		return nil
	}
	if frozen, unknown := g.Frozen(); frozen || unknown != nil {
		return err
	}
	return nil
}

// setPaused leaves the state of a sandbox that ends as it is.
func (h *host) setPaused(s *sandbox, paused, idle bool) {
	s.init.SetFrozen(paused)
	s.update(func() {
		s.record.Paused, s.record.Asleep = paused, idle
		if !paused {
			s.record.Touch()
		}
		switch {
		case paused && s.state == StateRunning:
			h.moveLocked(s, StatePaused)
		case !paused && s.state == StatePaused:
			h.moveLocked(s, StateRunning)
		}
	})
}

// Wait returns when the sandbox has ended: with the result of the command that it
// was for, where there is one.
func (m *Manager) Wait(ctx context.Context, ref string) (Info, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	if err := wait(ctx, s.ended); err != nil {
		return Info{}, err
	}
	return s.info(), m.missedEnd(s)
}

// missedEnd is why it is not known here how the command ended that s, which is
// over for this daemon, was for. Nil where it is, or where there was none.
func (m *Manager) missedEnd(s *sandbox) error {
	cause := s.endCause()
	if errors.Is(cause, errLeft) { // it runs on
		return m.leaveCause()
	}
	if s.kept().Main == 0 {
		return nil
	}
	if err := s.notBegun(); err != nil {
		return err
	}
	main, err := s.execution("")
	if err != nil || main.result() != nil {
		return err
	}
	return sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.wait", "sandbox %s ended, and it is not known how its command did: %w", s.kept().Name, cause))
}
