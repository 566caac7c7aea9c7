package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/posture"
	"github.com/caisson-run/caisson/sbxerr"
)

// checkPosture compares the live sandbox with what was declared for it: the
// process, its cgroup and its network namespace, each read back from the
// kernel. A difference, or something that cannot be read, is an error: the
// sandbox is then destroyed before anything of the caller's has run in it.
func (m *Manager) checkPosture(ctx context.Context, s *sandbox) error {
	r := s.kept()
	group, err := m.group(s.id)
	if err != nil {
		return err
	}
	process, err := posture.Check(ctx, posture.Declared{PID: s.process.pid, PIDFD: s.process.file, Spec: s.spec, Sockets: 1, Adopted: s.plan == nil})
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
	network, netErr := netns.Check(m.paths.netns(s.id))
	for _, d := range network {
		differences = append(differences, "network "+d.String())
	}
	checks = append(checks, networkCheck(r.Network, network, netErr))
	s.update(func() { s.posture = checks })
	if len(differences) > 0 {
		err = errors.Join(err, fmt.Errorf("%s", strings.Join(differences, "; ")))
	}
	return sbxerr.Wrap(sbxerr.Posture, "runtime.posture", errors.Join(err, netErr))
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
