package runtime

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/memwatch"
)

// watched shows the fleet to the watch of memory.
type watched struct{ *Manager }

// Watched implements memwatch.Fleet.
func (w watched) Watched() (list []memwatch.Sandbox) {
	for _, s := range w.all() {
		list = append(list, memwatch.Sandbox{
			ID: s.id, Owner: s.kept().OwnerUID, Group: func() (*cgroups.Group, error) { return w.group(s.id) }, Over: s.isOver, End: s.end,
		})
	}
	return list
}

// AwaitSandbox implements memwatch.Fleet.
func (w watched) AwaitSandbox(ctx context.Context) bool {
	for ctx.Err() == nil {
		w.mu.Lock()
		n := len(w.sandboxes)
		w.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-w.first:
		case <-ctx.Done():
		}
	}
	return false
}

// StartMemoryWatch counts the kernel memory of sandboxes that no cgroup counts, and ends
// those past a bound, until ctx or the manager ends. No sandbox is made before it counts.
func (m *Manager) StartMemoryWatch(ctx context.Context) {
	o := memwatch.Options{BPF: m.paths.bpf(), Log: m.log}
	if m.groups.Unified != "" {
		o.Group = filepath.Join(m.groups.Unified, m.opts.CgroupParent)
	}
	m.memory = memwatch.Start(ctx, watched{m}, o)
}

const uncountedWarning = "the memory of sockets is not counted on this host: time stamps, corked datagrams and error queues are refused (SBX-504)"

// memoryChecks is what the doctor tells of this daemon. The host may be able to count by now.
func memoryChecks(uncounted error) []Check {
	if uncounted == nil {
		return nil
	}
	return []Check{{
		Name: "count of sockets", Status: "warn", Detail: fmt.Sprintf("this daemon does not count the memory of sockets: %v", uncounted),
		Code: string(sbxerr.Of(uncounted)), Remedy: sbxerr.RemedyOf(uncounted),
	}}
}
