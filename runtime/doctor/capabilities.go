package doctor

import (
	"fmt"

	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/disk"
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
	var list []runtime.Capability
	for i := range settings.Table {
		list = append(list, limit(h, &settings.Table[i], mayRaiseLimits))
	}
	list = append(list, []runtime.Capability{
		{Field: "output_limit_bytes", Support: Enforced, Detail: "first and last half are kept"},
		{Field: "timeout", Support: Enforced, Detail: "TERM, then KILL to everything after the grace"},
		{Field: "workspace.mode=rw", Support: Enforced, Detail: "bind mount with mapped ids"},
		{Field: "workspace.mode=ro", Support: Enforced, Detail: "bind mount with mapped ids"},
		cow(),
		{Field: "user=root", Support: Enforced, Detail: "in profiles with root_user; never root of the host"},
		{Field: "tty", Support: Enforced, Detail: "a terminal made inside the sandbox"},
		{Field: "exec.limits", Support: Enforced, Detail: "a cgroup of the command's own, where it names limits; each as far as limits.* above are"},
		execKill(h),
		{Field: "files", Support: Enforced, Detail: "a process inside resolves every path, as the sandbox's user"},
		{Field: "exec.attach", Support: Enforced, Detail: "again too, after the daemon was restarted"},
		{Field: "pool", Support: Enforced, Detail: "ready sandboxes that serve one request each"},
		{Field: "publish", Support: Enforced, Detail: "TCP ports of the host, on loopback unless another address is named"},
		{Field: "links", Support: Enforced, Detail: "by name to a port that another sandbox of the same owner exposes"},
	}...)
	for _, m := range netns.Modes() {
		c := runtime.Capability{Field: "network=" + string(m.Mode), Support: Enforced, Detail: m.Summary}
		if err := refused[m.Mode]; err != nil {
			c.Support, c.Detail = Unsupported, err.Error()
		}
		list = append(list, c)
	}
	return list
}

// cow says whether workspaces can be copy-on-write, which takes a disk.
func cow() runtime.Capability {
	c := runtime.Capability{Field: "workspace.mode=cow", Support: Enforced, Detail: "an overlay over the directory, with what is written on the sandbox's disk"}
	if err := disk.Probe(); err != nil {
		c.Support, c.Detail = Unsupported, err.Error()
	}
	return c
}

func limit(h cgroups.Host, row *settings.Limit, mayRaiseLimits bool) runtime.Capability {
	c := runtime.Capability{Field: "limits." + row.Field, Support: Enforced, Detail: row.Held}
	var l settings.Limits
	*row.Of(&l) = row.Min
	err := h.CheckIO(cgroups.Limits(l))
	if l.DiskBytes != 0 || l.DiskInodes != 0 {
		err = disk.Probe()
	}
	switch {
	case err != nil:
		c.Support, c.Detail = Unsupported, err.Error()
	case row.Field == "open_files" && !mayRaiseLimits:
		c.Support, c.Detail = BestEffort, "clamped to the daemon's own limit, and reported: it lacks CAP_SYS_RESOURCE"
	case row.Controller == "":
	case row.Controller != "io" && h.Controllers[row.Controller] != finding.Yes:
		c.Support, c.Detail = Unsupported, fmt.Sprintf("no cgroup controller %q", row.Controller)
	default:
		c.Detail = fmt.Sprintf("%s (cgroup %s)", row.Held, h.Mode)
	}
	return c
}

func execKill(h cgroups.Host) runtime.Capability {
	if h.Tags != finding.Yes {
		return runtime.Capability{Field: "exec.kill", Support: BestEffort, Detail: "all of it with limits of its own; else what PID 1 can tell belongs to it"}
	}
	return runtime.Capability{Field: "exec.kill", Support: Enforced, Detail: fmt.Sprintf("all that the command started, by a cgroup of its own (cgroup %s)", h.Mode)}
}
