package runtime

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/volumes"
)

// Volumes returns the service of the volumes.
func (m *Manager) Volumes() *volumes.Service { return m.volumes }

// volumeFleet shows the fleet to the service of volumes.
type volumeFleet struct{ *Manager }

// Grant implements volumes.Fleet.
func (f volumeFleet) Grant(ctx context.Context) (peer.Grant, error) { return f.grant(ctx) }

// AdmitDisk implements volumes.Fleet.
func (f volumeFleet) AdmitDisk(g peer.Grant, bytes int64, admitted func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := g.CheckQuota(f.standingLocked(g), peer.Usage{DiskBytes: bytes})
	if err == nil {
		admitted()
	}
	return err
}

// UsersOf implements volumes.Fleet. A sandbox is known before it opens a volume.
func (f volumeFleet) UsersOf(g peer.Grant, k volumes.Key) (users []string, going []<-chan struct{}) {
	return f.usersOf(g, func(r record) bool {
		return r.OwnerUID == k.Owner && slices.ContainsFunc(r.Mounts, func(b plan.MountRequest) bool { return b.Type == plan.VolumeType && b.Source == k.Name })
	})
}
