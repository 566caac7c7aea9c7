package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/initproto/listener"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/posture"
)

// checkPosture compares the live sandbox with what was declared for it: the
// process, its cgroup and its network namespace, each read back from the
// kernel. A difference, or something that cannot be read, is an error: the
// sandbox is then destroyed before anything of the caller's has run in it.
func (h *host) checkPosture(ctx context.Context, s *sandbox) error {
	return h.checkPostureIn(ctx, s, nil)
}

// checkPostureIn is checkPosture in surroundings that were read before.
func (h *host) checkPostureIn(ctx context.Context, s *sandbox, around *posture.Surroundings) error {
	checks, err := h.comparePosture(ctx, s, posture.Declared{
		Listener: listener.Bytes(), FilterDigest: s.kept().FilterDigest, Sockets: 1, Adopted: s.plan == nil, Ends: h.paths.ends(s.id), Around: around})
	s.update(func() {
		s.posture = checks
		for _, c := range checks {
			if c.Name == posture.FilterDigest {
				s.record.FilterDigest = c.Declared
			}
		}
	})
	return err
}

// refreshPosture compares a sandbox again after a claim from a pool, or an update. It costs
// more than a claim, so it waits for the first reader. The claim itself looks at its own
// attachments. Commands run meanwhile, so the descriptors of PID 1 are not compared again. A
// sandbox that is not as declared is ended.
func (h *host) refreshPosture(ctx context.Context, s *sandbox) error {
	s.changing.Lock() // held by a claim, and while limits change
	defer s.changing.Unlock()
	if !s.postureStale() {
		return nil
	}
	checks, err := h.comparePosture(context.WithoutCancel(ctx), s, posture.Declared{Command: true})
	if s.endCause() != nil || errors.Is(err, sbxerr.Init) { // what ends is not as it was
		return nil
	}
	if err != nil {
		h.log.Error("posture of a sandbox that was claimed or updated", "sandbox", s.id, "err", err)
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

// compared is what a part of the sandbox is, and how that differs from what was
// declared.
type compared struct {
	checks []PostureCheck
	err    error
}

// comparePosture compares s with its declaration, as far as how says. Its parts have
// nothing to do with each other, and each waits for the kernel.
func (h *host) comparePosture(ctx context.Context, s *sandbox, how posture.Declared) ([]PostureCheck, error) {
	r := s.kept()
	group, err := h.group(s.id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	how.PID, how.PIDFD, how.Spec = s.process.pid, s.process.file, s.spec
	s.mu.Unlock()
	var process, network compared
	var parts sync.WaitGroup
	if how.Unisolated = r.unisolated(); how.Unisolated {
		for _, p := range r.HostMounts {
			how.HostMounts = append(how.HostMounts, posture.Place(p))
		}
	}
	parts.Go(func() { process = compareProcess(ctx, how) })
	parts.Go(func() { network = h.compareNetwork(r) })
	limits := compareLimits(group, r.Limits.Cgroup(), h.groups)
	parts.Wait()
	checks := slices.Concat([]PostureCheck{}, process.checks, limits.checks, network.checks)
	return checks, sbxerr.Wrap(sbxerr.Posture, "runtime.posture", errors.Join(process.err, limits.err, network.err))
}

func compareProcess(ctx context.Context, d posture.Declared) compared {
	var c compared
	results, err := posture.Check(ctx, d)
	for _, r := range results {
		c.checks = append(c.checks, PostureCheck{Name: r.Name, Declared: r.Declared, Live: r.Live})
	}
	c.err = err
	return c
}

// compareLimits reads each file once: what is no mismatch is as it was declared.
func compareLimits(group *cgroups.Group, limits cgroups.Limits, host cgroups.Host) compared {
	var c compared
	live := map[string]string{}
	var differences []error
	for _, mm := range group.Verify(limits) {
		live[mm.File] = mm.Live
		differences = append(differences, fmt.Errorf("cgroup %s", mm))
	}
	for _, f := range limits.Files(host) {
		c.checks = append(c.checks, PostureCheck{Name: "cgroup " + f.Name, Declared: f.Value, Live: f.Value})
		if found, differs := live[f.Name]; differs {
			c.checks[len(c.checks)-1].Live = found
		}
	}
	c.err = errors.Join(differences...)
	return c
}

func (h *host) compareNetwork(r record) compared {
	if isHosts(r.Network) { // compareProcess has seen that the namespace is the host's
		return compared{checks: []PostureCheck{networkCheck(r.Network, nil, nil)}}
	}
	found, err := h.checkNetns(r)
	errs := []error{err}
	for _, d := range found {
		errs = append(errs, fmt.Errorf("network %s", d))
	}
	return compared{[]PostureCheck{networkCheck(r.Network, found, err)}, errors.Join(errs...)}
}

// checkNetns compares the network namespace with what the mode and policy of r need.
func (h *host) checkNetns(r record) ([]netns.Difference, error) {
	if r.Network == netns.ModeBridge {
		return h.opts.Bridge.Check(h.paths.netns(r.ID), h.numberOf(r))
	}
	redirect, err := redirectOf(r.Policy)
	if err != nil {
		return nil, err
	}
	return netns.Check(h.paths.netns(r.ID), redirect)
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
