package doctor

import (
	"fmt"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime"
)

// How a field of a request is honoured.
const (
	Enforced    = "enforced"
	BestEffort  = "best_effort"
	Unsupported = "unsupported" // refused when asked for
)

// Capabilities says, field by field of a request, what h honours.
// refused has the network modes that are refused here, and why.
func Capabilities(h cgroups.Host, mayRaiseLimits bool, refused map[netns.Mode]error) []runtime.Capability {
	list := []runtime.Capability{
		limit(h, "limits.memory_bytes", "memory", "hard, without swap"),
		limit(h, "limits.milli_cpu", "cpu", "quota of each 100 ms"),
		limit(h, "limits.pids", "pids", "processes and threads"),
		limit(h, "limits.cpu_shares", "cpu", "weight while CPUs are short"),
		ioRate(h, "limits.io_read_bps", cgroups.IO{ReadBPS: cgroups.MinIOBPS}),
		ioRate(h, "limits.io_write_bps", cgroups.IO{WriteBPS: cgroups.MinIOBPS}),
		openFiles(mayRaiseLimits),
		{Field: "limits.tmpfs_bytes", Support: Enforced, Detail: "of each tmpfs, and counted as memory"},
		{Field: "output_limit_bytes", Support: Enforced, Detail: "first and last half are kept"},
		{Field: "timeout", Support: Enforced, Detail: "TERM, then KILL to everything after the grace"},
		{Field: "workspace.mode=rw", Support: Enforced, Detail: "bind mount with mapped ids"},
		{Field: "workspace.mode=ro", Support: Enforced, Detail: "bind mount with mapped ids"},
		{Field: "workspace.mode=cow", Support: Unsupported, Detail: "not offered yet"},
		{Field: "user=root", Support: Unsupported, Detail: "no profile of this version grants root inside"},
		{Field: "tty", Support: Enforced, Detail: "a terminal made inside the sandbox"},
		{Field: "exec.limits", Support: Enforced, Detail: "a cgroup of the command's own, where it names limits; each as far as limits.* above are"},
		{Field: "exec.kill", Support: BestEffort, Detail: "all of it with limits of its own; else what PID 1 can tell belongs to it"},
		{Field: "files", Support: Enforced, Detail: "a process inside resolves every path, as the sandbox's user"},
		{Field: "exec.attach", Support: Enforced, Detail: "again too, after the daemon was restarted"},
		{Field: "pool", Support: Enforced, Detail: "ready sandboxes that serve one request each"},
		{Field: "publish", Support: Enforced, Detail: "TCP ports of the host, on loopback unless another address is named"},
		{Field: "links", Support: Enforced, Detail: "by name to a port that another sandbox of the same owner exposes"},
		{Field: "limits.disk_bytes", Support: Unsupported, Detail: "nothing but tmpfs and workspaces can be written"},
	}
	for _, m := range netns.Modes() {
		c := runtime.Capability{Field: "network=" + string(m.Mode), Support: Enforced, Detail: m.Summary}
		if err := refused[m.Mode]; err != nil {
			c.Support, c.Detail = Unsupported, err.Error()
		}
		list = append(list, c)
	}
	return list
}

func limit(h cgroups.Host, field, controller, detail string) runtime.Capability {
	if h.Controllers[controller] != finding.Yes {
		return runtime.Capability{Field: field, Support: Unsupported, Detail: fmt.Sprintf("no cgroup controller %q", controller)}
	}
	return runtime.Capability{Field: field, Support: Enforced, Detail: fmt.Sprintf("%s (cgroup %s)", detail, h.Mode)}
}

func ioRate(h cgroups.Host, field string, io cgroups.IO) runtime.Capability {
	if err := h.CheckIO(io); err != nil {
		return runtime.Capability{Field: field, Support: Unsupported, Detail: err.Error()}
	}
	return runtime.Capability{Field: field, Support: Enforced, Detail: fmt.Sprintf("with each disk that has files of the sandbox (cgroup %s)", h.Mode)}
}

func openFiles(mayRaiseLimits bool) runtime.Capability {
	c := runtime.Capability{Field: "limits.open_files", Support: Enforced, Detail: "of each process"}
	if !mayRaiseLimits {
		c.Support, c.Detail = BestEffort, "clamped to the daemon's own limit, and reported: it lacks CAP_SYS_RESOURCE"
	}
	return c
}
