package runtime

import (
	"cmp"
	"context"
	"path"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/pool"
)

// StartPools begins to fill the pools, and the stock of network namespaces. They go on until Close, before which it
// has returned.
func (m *Manager) StartPools(ctx context.Context) {
	m.pools.Start(ctx)
	m.stock.Start(ctx)
	m.templates.Start()
}

// poolFleet shows the fleet to the pools.
type poolFleet struct{ *Manager }

// Plan implements pool.Fleet.
func (f poolFleet) Plan(ctx context.Context, r plan.CreateRequest) (*plan.Sandbox, error) {
	return f.planFor(ctx, r)
}

// Make implements pool.Fleet.
func (f poolFleet) Make(ctx context.Context, p *plan.Sandbox) (pool.Sandbox, error) {
	s, err := f.make(ctx, p, func(r *record) { r.Pooled = true })
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(f.announceSandbox(ctx, s), f.warm(ctx, s)); err != nil {
		s.end(pool.ErrSpoiled)
		return nil, err
	}
	return ready{s}, nil
}

// Room implements pool.Fleet.
func (f poolFleet) Room() (free, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all = f.opts.MaxSandboxes - f.opts.ForRoot
	return all - len(f.sandboxes) + retiredIn(f.sandboxes), all
}

// Waiting implements pool.Fleet.
func (f poolFleet) Waiting() bool { return f.making.Waiting() > 0 }

// ImageOf implements pool.Fleet.
func (f poolFleet) ImageOf(profile string) string { return f.settings().Profiles[profile].Image }

// ready shows a sandbox to the pool that it waits in.
type ready struct{ *sandbox }

// Plan implements pool.Sandbox.
func (r ready) Plan() *plan.Sandbox { return r.plan }

// End implements pool.Sandbox.
func (r ready) End(cause error) { r.end(cause) }

// Ended implements pool.Sandbox.
func (r ready) Ended() bool { return r.endCause() != nil }

// Usable implements pool.Sandbox.
func (r ready) Usable() bool { return !r.Ended() && r.init.Err() == nil }

// Gone implements pool.Sandbox.
func (r ready) Gone() <-chan struct{} { return r.gone }

// warm has PID 1 start a process once, our own, which does nothing: the first
// start in a sandbox takes twice as long as the next.
func (h *host) warm(ctx context.Context, s *sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Start)
	defer cancel()
	proc, err := s.init.Start(ctx, s.ownCommand([]string{path.Join(initproto.Dir, initproto.BinaryName), initproto.NothingMode}))
	if err != nil {
		return err
	}
	if _, err := proc.Wait(ctx); err != nil {
		return err
	}
	return proc.Release()
}

// needsRules reports whether sandboxes of a profile have a network namespace with rules.
func (h *host) needsRules(profile string) bool {
	mode, _, err := h.opts.Network.NetworkOf(h.settings().Profiles[profile].Network, plan.NetworkRequest{})
	return err == nil && (mode == netns.ModeAllow || mode == netns.ModeOpen)
}
