// Package capacity tells how much a host has for sandboxes.
package capacity

import (
	"runtime"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Host is where sandboxes are made.
type Host struct {
	Root               string // of the daemon, on disk
	DiskReserve        int64  // bytes below Root that are the host's own
	Sandboxes, ForRoot int    // that may live, and of them those that only root makes
}

// Of returns all that the caller of g may have, and what is left: that less the limits of live
// sandboxes. The disk is shared without promises, so that its free bytes are left.
func (h Host) Of(g peer.Grant, now peer.Standing) (all, left peer.Resources, err error) {
	memory, err := cgroups.Pressure()
	if err != nil {
		return all, left, err
	}
	use, err := disk.Host(h.Root, h.DiskReserve)
	if err != nil {
		return all, left, err
	}
	host := peer.Resources{
		MilliCPU: 1000 * int64(runtime.NumCPU()), MemoryBytes: memory.Total, Sandboxes: int64(h.Sandboxes), DiskBytes: use.Bytes,
	}
	if !g.IsRoot() {
		host.Sandboxes -= int64(h.ForRoot)
	}
	all, left = g.Room(now, host)
	left.DiskBytes = min(left.DiskBytes, use.Bytes-use.UsedBytes)
	return all, left, nil
}
