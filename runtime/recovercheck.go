package runtime

import (
	"github.com/caisson-run/caisson/netns"
)

// checkHost refuses to adopt sandboxes with a network on a host on which rules cannot be
// programmed and listed. No namespace could be compared with its declaration, and a sandbox
// that cannot be compared would be removed: the daemon's own trouble must not end it. The
// namespace in which that is tried is the first one in stock. Others with the same rules are
// compared with it, which takes no command.
func (m *Manager) checkHost(records []record) error {
	for _, r := range records {
		if r.ExitedAt.IsZero() && r.Network != netns.ModeNone && !isHosts(r.Network) {
			return m.stock.Add()
		}
	}
	return nil
}
