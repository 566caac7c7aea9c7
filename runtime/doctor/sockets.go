package doctor

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/cgroups/sockmem"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/sbxerr"
)

// examineSockets looks whether the memory of sockets can be counted.
func examineSockets(context.Context, Host) []runtime.Check {
	host, err := cgroups.Detect()
	if err == nil && host.Unified == "" {
		err = fmt.Errorf("this host has no cgroup2 hierarchy")
	}
	if err == nil {
		err = sockmem.Check()
	}
	return judgeSockets(err)
}

func judgeSockets(err error) []runtime.Check {
	const name = "memory of sockets"
	if err == nil {
		return ok(name, "what the sockets of a sandbox hold is counted, and bounded")
	}
	return []runtime.Check{{
		Name: name, Status: Warn, Code: string(sbxerr.KernelMemory),
		Detail: fmt.Sprintf("it cannot be counted, so sandboxes may not use time stamps, corked datagrams or error queues of sockets: %v", err),
		Remedy: "use a kernel of Linux 5.17 or later with CONFIG_DEBUG_INFO_BTF, mount cgroup2, and give the daemon CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
	}}
}
