package peer

// Resources are what sandboxes take of a host.
type Resources struct {
	MilliCPU, MemoryBytes, Sandboxes, DiskBytes int64
}

// Room returns what g may have of a host in all, and what is left of that: the quota and the
// budgets above narrow both.
func (g Grant) Room(now Standing, host Resources) (all, left Resources) {
	given := now.All
	given.DiskBytes = 0 // disks take of the host what is written to them
	all, left = host, host.without(given)
	within := func(most, used Usage) {
		bound := Resources{most.MilliCPU, most.MemoryBytes, most.Sandboxes, most.DiskBytes}
		all, left = all.atMost(bound), left.atMost(bound.without(used))
	}
	within(g.rule.Quota, now.Owner)
	for i, p := range g.above {
		within(p.Budget, now.Below[i].Usage)
	}
	return all, left
}

func (r Resources) without(used Usage) Resources {
	return Resources{
		max(0, r.MilliCPU-used.MilliCPU), max(0, r.MemoryBytes-used.MemoryBytes), max(0, r.Sandboxes-used.Sandboxes),
		max(0, r.DiskBytes-used.DiskBytes),
	}
}

func (r Resources) atMost(m Resources) Resources {
	return Resources{min(r.MilliCPU, m.MilliCPU), min(r.MemoryBytes, m.MemoryBytes), min(r.Sandboxes, m.Sandboxes), min(r.DiskBytes, m.DiskBytes)}
}

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	u.Sandboxes += v.Sandboxes
	u.MemoryBytes += v.MemoryBytes
	u.MilliCPU += v.MilliCPU
	u.Execs += v.Execs
	u.PIDs += v.PIDs
	u.DiskBytes += v.DiskBytes
}
