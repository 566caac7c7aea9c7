package doctor

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/cgroups/sockmem"
	"github.com/caisson-run/caisson/runtime"
)

// examineSockets proves that the memory of sockets can be counted. Without that every
// sandbox is refused more.
func examineSockets(ctx context.Context, _ Host) []runtime.Check {
	host, err := cgroups.Detect()
	if err == nil && host.Unified == "" {
		err = fmt.Errorf("this host has no cgroup2 hierarchy")
	}
	if err == nil {
		err = sockmem.Check(ctx, host.Unified)
	}
	return judgeSockets(err)
}

func judgeSockets(err error) []runtime.Check {
	const name = "memory of sockets"
	if err == nil {
		return ok(name, "what the sockets of a sandbox hold is counted, and bounded")
	}
	return problem(name, Warn, sbxerr.SocketMemory, fmt.Errorf("it cannot be counted, so sandboxes may not use time stamps, corked datagrams or error queues of sockets: %w", err))
}
