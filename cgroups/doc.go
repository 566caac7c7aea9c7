// Package cgroups sets the limits of sandboxes and reads their usage.
//
// # Lifecycle
//
// The daemon asks the host once what it has, and each sandbox then goes
// through the same steps:
//
//	host, err := cgroups.Detect()              // once: layout and controllers
//	resources, err := limits.Resources(host)   // pure: refuses before anything is made
//	// the OCI runtime makes the group from resources and host path /<parent>/<id>
//	group, err := cgroups.Open(host, "/caisson/"+id)
//	err = group.Tighten(limits)                // created, not started: limits that runtimes leave out
//	diffs, err := group.Verify(limits)         // compare live limits with declared ones
//	// the command runs
//	stats, err := group.Stats()                // before the group is removed
//	events, err := group.Events()
//	err = group.Kill(ctx)                      // only if something is left
//	err = group.Remove(ctx)                    // idempotent
//
// A sandbox that is meant for more than one command may have children, one for a
// command with limits of its own, and can be stopped and changed while it lives:
//
//	err = group.Delegate(pid)                  // created, not started: v2 needs PID 1 in a leaf
//	child, err := group.NewChild("e1", cl)
//	pid, err := cgroups.HostPID(group, inside) // the command, before it runs anything
//	err = child.Add(pid)
//	err = child.Kill(ctx)                      // all its processes
//	events, err := child.Events()
//	err = child.Remove(ctx)
//	err = group.Freeze(ctx)                    // Thaw, Frozen
//	err = group.Change(limits, more)           // or Set: all of it or nothing
//
// A Group is a name, not a resource: it holds no descriptor and needs no
// Close, and Open of a removed group is fine. So removal by ID works after a crash.
//
// # Layouts
//
// The mode is decided as runc decides it, because runc makes the groups: v2
// if /sys/fs/cgroup is a cgroup2 file system, else v1, called hybrid when a
// cgroup2 file system is mounted at /sys/fs/cgroup/unified. In hybrid mode
// the controllers are those of v1, and the unified group only adds
// cgroup.kill.
//
// # What differs between v1 and v2
//
//   - Out of memory: on both the kernel kills one process of a sandbox, and only Events
//     tells. v2 kills a command with limits of its own whole (memory.oom.group).
//   - Swap: v2 forbids it (memory.swap.max=0); v1 bounds memory and swap
//     together, so the sum never exceeds the limit, and sets swappiness 0 so
//     that pressure elsewhere on the host does not swap the sandbox out.
//   - TCP buffers: v2 counts them as memory; v1 does not count them at all
//     until memory.kmem.tcp.limit_in_bytes is set. OCI runtimes ignore that
//     field by now, so Tighten sets it.
//   - Events: v2 counts events of children in the group too. v1 counts them only in the
//     group of the process, so Events adds up the children that still exist.
//   - Lowering the memory limit below the current usage: v1 refuses, v2 kills. Change
//     refuses on both.
//   - Freezing: v1 holds back SIGKILL until the thaw; v2 does not.
//   - Devices: v1 has a file that Verify reads; v2 has a BPF program that
//     Verify can only see to be there.
//   - Huge pages are never counted as memory. The hugetlb controller forbids
//     them; a host that has such pages but not the controller is refused.
//   - memory.peak needs kernel 5.19 on v2; before it the peak is not known,
//     which is an answer of its own (Reading.Known).
package cgroups
