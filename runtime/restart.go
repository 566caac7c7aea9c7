package runtime

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Restart replaces a sandbox of the caller, live or ended, by a new one under the same
// name, made by the request of the old one. Files and commands of the old one go, and so do
// changes by Update. A sandbox without a name gets a new ID. A refused request removes
// nothing.
func (m *Manager) Restart(ctx context.Context, ref string) (Info, error) {
	defer m.Busy()()
	old, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	g, err := m.grant(ctx)
	if err != nil {
		return Info{}, err
	}
	r, err := old.restartable()
	if err == nil && !old.identity().of(g) {
		err = sbxerr.WithRemedy(sbxerr.Peer, "runtime.restart",
			fmt.Errorf("sandbox %s is another user's: a new one would be yours", ref), "have its owner restart it, or remove it: caisson rm --force "+ref)
	}
	if err != nil {
		return Info{}, err
	}
	p, err := m.planFor(ctx, r)
	if err != nil {
		return Info{}, err
	}
	s, err := m.replace(ctx, old, p)
	if err != nil {
		return Info{}, err
	}
	info := s.info()
	info.Replaced = old.id
	return info, nil
}

// replace removes old and obtains a sandbox for p in its place. It removes nothing where a
// directory of p cannot be opened.
func (m *Manager) replace(ctx context.Context, old *sandbox, p *plan.Sandbox) (*sandbox, error) {
	if err := m.checkBinds(ctx, p); err != nil {
		return nil, err
	}
	turn := old.passTurnOn()
	if err := m.removeNow(ctx, old); err != nil {
		if turn != nil {
			turn.Leave()
		}
		return nil, err
	}
	return m.obtain(ctx, p, turn, nil)
}

// restartable returns the request that s was made by, unless s is for one command.
func (s *sandbox) restartable() (plan.CreateRequest, error) {
	have := s.keptAtRest()
	if have.forCommand() {
		return plan.CreateRequest{}, sbxerr.Final(sbxerr.WithRemedy(sbxerr.State, "runtime.restart",
			fmt.Errorf("sandbox %s was made for one command", have.Name), "run the command again: caisson run"))
	}
	r := have.Settings
	r.Ensure, r.Replace = false, false
	return r, nil
}
