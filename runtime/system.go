package runtime

import (
	"context"

	"github.com/caisson-run/caisson/runtime/idblock"
)

// Inspect returns all that is known of the sandbox that ref names.
func (m *Manager) Inspect(_ context.Context, ref string) (*Detail, error) {
	defer m.Busy()()
	s, err := m.find(ref)
	if err != nil {
		return nil, err
	}
	d := &Detail{
		Info: s.info(), Limits: s.record.Limits, Cgroup: m.cgroupPath(s.record.ID), ImageDigest: s.record.ImageDigest,
		HostIDSize: idblock.Size,
	}
	return d, s.detail(d)
}

// Versions says what is running.
func (m *Manager) Versions(ctx context.Context) (Versions, error) {
	defer m.Busy()()
	return m.opts.Versions(ctx)
}

// Doctor says what would fail on this host, and how to mend it.
func (m *Manager) Doctor(ctx context.Context) ([]Check, error) {
	defer m.Busy()()
	return m.opts.Doctor(ctx)
}

// Capabilities says how each field of a request is honoured on this host.
func (m *Manager) Capabilities(ctx context.Context) ([]Capability, error) {
	defer m.Busy()()
	return m.opts.Capabilities(ctx)
}
