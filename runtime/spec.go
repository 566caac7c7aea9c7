package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/seccomp"
)

// buildSpec makes the OCI spec of p.
func (h *host) buildSpec(p *plan.Sandbox, block idblock.Block) (*specs.Spec, []string, error) {
	return p.Spec(plan.Host{Cgroups: h.groups, Rlimits: h.rlimit, OOMScore: h.oomScore}, h.paths.places(p.ID, h.cgroupPath(p.ID)), block)
}

// Spec returns what a run of r would get. Nothing is made; the ID and the
// block of host ids are those that a first sandbox could have.
func (m *Manager) Spec(ctx context.Context, r plan.Request) (*SpecView, error) {
	defer m.Busy()()
	p, _, err := m.planMain(ctx, r)
	if err != nil {
		return nil, err
	}
	p = refuseUncounted(p, m.memory.Uncounted())
	if p.Limits.Disks, err = m.disksFor(ctx, p); err != nil {
		return nil, err
	}
	spec, _, err := m.buildSpec(p, m.blocks.First())
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "runtime.spec", err)
	}
	view := &SpecView{
		SpecJSON: data, CgroupValues: map[string]string{}, Mounts: oci.MountLines(spec), SeccompProfile: p.Seccomp.Name,
		NetworkRules: p.Network.Describe(),
	}
	if isHosts(p.Network) {
		view.NetworkRules = []string{"the host's own network: nothing is refused, counted or recorded"}
	}
	if p.Network == netns.ModeBridge {
		view.NetworkRules = m.opts.Network.Bridge.Describe(m.blocks.Number(m.blocks.First()))
	}
	for _, port := range p.Ports {
		view.NetworkRules = append(view.NetworkRules, "publish "+port.String()+": who connects there is connected to 127.0.0.1 inside, from 127.0.0.1")
	}
	if p.Policy.AllowECH {
		view.NetworkRules = append(view.NetworkRules, "allow-ech: TLS clients may encrypt the name that they ask for")
	}
	lines, err := policy.RouteLines(p.Policy)
	if err != nil {
		return nil, err
	}
	view.NetworkRules = append(view.NetworkRules, lines...)
	for _, n := range p.Exposed {
		view.NetworkRules = append(view.NetworkRules, fmt.Sprintf("expose %d: links of the same owner's sandboxes may lead there", n))
	}
	for _, f := range p.Limits.Cgroup().Files(m.groups) {
		view.CgroupValues[f.Name] = f.Value
	}
	for _, row := range p.Seccomp.Rows(p.Filter()) {
		view.SeccompRules = append(view.SeccompRules, SeccompRule(row))
	}
	return view, nil
}

// PseudoFilter returns the filter that a run of r would get as libseccomp's pseudo filter
// code. It is what the live filter is compared with.
func (m *Manager) PseudoFilter(ctx context.Context, r plan.Request) (string, error) {
	defer m.Busy()()
	p, _, err := m.planMain(ctx, r)
	if err != nil {
		return "", err
	}
	spec, err := p.Seccomp.Spec(p.Filter())
	if err != nil {
		return "", err
	}
	compiled, err := seccomp.CompileSpec(spec)
	if err != nil {
		return "", err
	}
	return compiled.PFC, nil
}

// refuseUncounted is p, without the sockets' ways to memory where that is not counted.
func refuseUncounted(p *plan.Sandbox, uncounted error) *plan.Sandbox {
	if uncounted == nil {
		return p
	}
	refusing := *p
	refusing.Seccomp = p.Seccomp.RefuseSocketMemory()
	return &refusing
}
