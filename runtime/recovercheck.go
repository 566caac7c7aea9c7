package runtime

import (
	"github.com/caisson-run/caisson/netns"
)

// checkHost refuses to adopt sandboxes with a network on a host whose iptables
// commands do not run. Without them no namespace can be compared with its declaration,
// and a sandbox that cannot be compared would be removed: the daemon's own trouble must
// not end it.
func checkHost(records []record) error {
	for _, r := range records {
		if r.ExitedAt.IsZero() && r.Network != netns.ModeNone {
			return netns.Filters()
		}
	}
	return nil
}
