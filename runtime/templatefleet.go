package runtime

import (
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/templates"
)

// Templates returns the service of the templates.
func Templates(m *Manager) *templates.Service { return m.templates }

// templateFleet shows the fleet to the service of templates.
type templateFleet struct{ imageFleet }

// Profiles implements templates.Fleet.
func (f templateFleet) Profiles() map[string]plan.Profile { return f.settings().Profiles }
