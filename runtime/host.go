package runtime

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/ports"
	"github.com/caisson-run/caisson/runtime/snapshots"
	"github.com/caisson-run/caisson/runtime/templates"
	"github.com/caisson-run/caisson/runtime/usage"
	"github.com/caisson-run/caisson/runtime/volumes"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// host is the part of a Manager that knows no other sandboxes than the one it is asked about:
// the directories, the engine and the settings by which one is made, run and removed.
type host struct {
	engine     Engine
	store      images.Store
	images     *imageservice.Service
	opts       Options
	applied    atomic.Pointer[Settings] // the latest, nil before Apply
	log        *slog.Logger
	paths      paths
	blocks     *idblock.Allocator
	groups     cgroups.Host
	rlimit     []specs.POSIXRlimit // the daemon's own, which bound the sandboxes'
	oomScore   int                 // the daemon's own, below which no sandbox can go
	init       *pid1.Program
	boot       string             // ID of this boot of the host
	owners     *mount.UserNSCache // maps owners of workspaces
	published  ports.Table
	volumes    *volumes.Service
	snapshots  *snapshots.Service
	templates  *templates.Service
	workspaces *workspaces.Service
	spare      *output.Room // of output that the disk takes nothing of
	throttled  atomic.Int64 // nanoseconds that limits of CPU held sandboxes back
	usages     usage.Store
	disks      disk.Maker
	usernsMu   sync.Mutex
	userns     map[idblock.Block]*mount.UserNS
}
