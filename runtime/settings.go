package runtime

import (
	"context"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/apply"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/snapshots"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// Settings is the part of Options that can change while a Manager runs.
type Settings struct {
	Profiles   map[string]plan.Profile
	Workspaces mount.Allowed
	Control    apply.Control // files of copy-on-write workspaces that are applied on demand
	Changesets workspaces.Retention
	Snapshots  snapshots.Retention
	Images     imageservice.Settings
	Languages  map[string]string // images of root's by language
	Peers      peer.Policy
}

// Reloaded is the answer to a reload of the configuration.
type Reloaded struct {
	Changed      []string // keys whose new values are in force
	NeedsRestart []string // keys whose new values need a restart of the daemon
	Digest       string   // of the effective configuration, as in the event daemon.started
}

// settings returns the settings in force.
func (h *host) settings() *Settings {
	if s := h.applied.Load(); s != nil {
		return s
	}
	return &h.opts.Settings
}

// Apply puts s in force for later calls. Sandboxes that exist keep the values that
// they were made with.
func (m *Manager) Apply(s Settings) {
	m.applied.Store(&s)
	m.pools.Look()
}

// ReloadConfig reads the configuration again, for root alone.
func (m *Manager) ReloadConfig(ctx context.Context) (Reloaded, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckAdmin); err != nil {
		return Reloaded{}, err
	}
	return m.opts.Reload(ctx)
}

// profileOf returns the profile of a sandbox as it was when the sandbox was made.
func (h *host) profileOf(r record) plan.Profile {
	if r.Preset != nil {
		return *r.Preset
	}
	return h.settings().Profiles[r.Profile]
}
