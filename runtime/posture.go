package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/posture"
	"github.com/caisson-run/caisson/sbxerr"
)

// checkPosture compares the live sandbox with what was declared for it: the
// process, its cgroup and its network namespace, each read back from the
// kernel. A difference, or something that cannot be read, is an error: the
// sandbox is then destroyed before anything of the caller's has run in it.
func (m *Manager) checkPosture(ctx context.Context, s *sandbox) error {
	checks, err := m.comparePosture(ctx, s, posture.Declared{Sockets: 1, Adopted: s.plan == nil})
	s.update(func() { s.posture = checks })
	return err
}

// refreshPosture compares a sandbox out of a pool once more, with what was
// attached and set when it was claimed. It would cost more than the claim, which
// looks at what it attaches, so it waits until somebody wants to see it. Commands
// run meanwhile: what PID 1 has open for them stays as it was found before. A
// sandbox that is not as declared is ended.
func (m *Manager) refreshPosture(ctx context.Context, s *sandbox) error {
	s.changing.Lock() // held by a claim, and while limits change
	defer s.changing.Unlock()
	if !s.postureStale() {
		return nil
	}
	checks, err := m.comparePosture(context.WithoutCancel(ctx), s, posture.Declared{Command: true})
	if s.endCause() != nil || errors.Is(err, sbxerr.Init) { // what ends is not as it was
		return nil
	}
	if err != nil {
		m.log.Error("posture of a sandbox out of a pool", "sandbox", s.id, "err", err)
		s.end(err)
		return err
	}
	s.update(func() { s.posture, s.stale = renewed(s.posture, checks), false })
	return nil
}

func (s *sandbox) postureStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale && (s.state == StateRunning || s.state == StatePaused)
}

// renewed is fresh, and what of old was not compared again.
func renewed(old, fresh []PostureCheck) []PostureCheck {
	again := map[string]bool{}
	for _, c := range fresh {
		again[c.Name] = true
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(c PostureCheck) bool { return again[c.Name] })
	return slices.Concat(fresh, kept)
}

// comparePosture compares s with its declaration, as far as how says.
func (m *Manager) comparePosture(ctx context.Context, s *sandbox, how posture.Declared) ([]PostureCheck, error) {
	r := s.kept()
	group, err := m.group(s.id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	how.PID, how.PIDFD, how.Spec = s.process.pid, s.process.file, s.spec
	s.mu.Unlock()
	process, err := posture.Check(ctx, how)
	checks := []PostureCheck{}
	for _, c := range process {
		checks = append(checks, PostureCheck{Name: c.Name, Declared: c.Declared, Live: c.Live})
	}
	var differences []string
	for _, mm := range group.Verify(r.Limits.cgroup()) {
		differences = append(differences, "cgroup "+mm.String())
	}
	live := group.Values()
	for _, f := range r.Limits.cgroup().Files(m.host) {
		checks = append(checks, PostureCheck{Name: "cgroup " + f.Name, Declared: f.Value, Live: live[f.Name]})
	}
	network, netErr := m.checkNetns(r)
	for _, d := range network {
		differences = append(differences, "network "+d.String())
	}
	checks = append(checks, networkCheck(r.Network, network, netErr))
	if len(differences) > 0 {
		err = errors.Join(err, fmt.Errorf("%s", strings.Join(differences, "; ")))
	}
	return checks, sbxerr.Wrap(sbxerr.Posture, "runtime.posture", errors.Join(err, netErr))
}

// checkNetns compares the network namespace with what the mode and policy of r need.
func (m *Manager) checkNetns(r record) ([]netns.Difference, error) {
	if r.Network == netns.ModeBridge {
		return m.opts.Bridge.Check(m.paths.netns(r.ID), m.blocks.Number(idblock.Block{Base: r.HostIDBase}))
	}
	gate, err := gateOf(r.Policy)
	if err != nil {
		return nil, err
	}
	return netns.Check(m.paths.netns(r.ID), gate)
}

// networkCheck sums up the comparisons of the network namespace, which have no
// value each that would be worth reading.
func networkCheck(mode netns.Mode, differences []netns.Difference, err error) PostureCheck {
	c := PostureCheck{Name: "network", Declared: string(mode), Live: string(mode)}
	switch {
	case err != nil:
		c.Live = "could not tell: " + err.Error()
	case len(differences) > 0:
		c.Live = fmt.Sprintf("%d differences: %v", len(differences), differences)
	}
	return c
}
