package runtime

import (
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/pool"
)

// checkHost refuses to adopt sandboxes with a network on a host on which rules cannot be
// programmed and listed. No namespace could be compared with its declaration, and a sandbox
// that cannot be compared would be removed: the daemon's own trouble must not end it. The
// namespace in which that is tried is the first one in stock. Others with the same rules are
// compared with it, which takes no command.
func checkHost(records []record, stock *pool.Stock) error {
	for _, r := range records {
		if r.ExitedAt.IsZero() && r.Network != netns.ModeNone && !isHosts(r.Network) {
			return stock.Add()
		}
	}
	return nil
}
