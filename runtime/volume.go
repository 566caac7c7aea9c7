package runtime

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/volumes"
)

// VolumeInfo is a volume and the names of the sandboxes that use it.
type VolumeInfo struct {
	volumes.Volume
	UsedBy []string
}

// CreateVolume makes a volume of the caller's. One that is there stays as it is.
func (m *Manager) CreateVolume(ctx context.Context, name string) (VolumeInfo, error) {
	defer m.Busy()()
	g, err := m.grantVolumes(ctx)
	if err == nil {
		err = volumes.CheckName(name)
	}
	if err != nil {
		return VolumeInfo{}, err
	}
	k := volumes.Key{Owner: g.Caller().UID, Name: name}
	created, err := m.volumes.Create(k, g.Caller().GID, g.Volumes())
	if created {
		err = errors.Join(err, m.confirmVolume(ctx, events.VolumeCreated, k))
	}
	if err != nil {
		return VolumeInfo{}, err
	}
	return m.volumeInfo(g, k)
}

// ListVolumes returns the volumes of the caller. Root sees all.
func (m *Manager) ListVolumes(ctx context.Context) ([]VolumeInfo, error) {
	defer m.Busy()()
	g, err := m.grantVolumes(ctx)
	if err != nil {
		return nil, err
	}
	return m.visibleVolumes(g, func(v volumes.Volume) bool { return g.Sees(v.Owner, "") })
}

// InspectVolume returns one volume. Root may name that of another user UID+NAME.
func (m *Manager) InspectVolume(ctx context.Context, ref string) (VolumeInfo, error) {
	defer m.Busy()()
	g, k, err := m.volumeOf(ctx, ref)
	if err != nil {
		return VolumeInfo{}, err
	}
	return m.volumeInfo(g, k)
}

// RemoveVolume removes a volume that no sandbox uses, with all files in it.
func (m *Manager) RemoveVolume(ctx context.Context, ref string) error {
	defer m.Busy()()
	g, k, err := m.volumeOf(ctx, ref)
	if err != nil {
		return err
	}
	return m.removeVolume(ctx, g, k)
}

// PruneVolumes removes the caller's volumes that no sandbox uses. With dryRun it only
// returns them.
func (m *Manager) PruneVolumes(ctx context.Context, dryRun bool) ([]VolumeInfo, error) {
	defer m.Busy()()
	g, err := m.grantVolumes(ctx)
	if err != nil {
		return nil, err
	}
	own, err := m.visibleVolumes(g, func(v volumes.Volume) bool { return v.Owner == g.Caller().UID })
	if err != nil {
		return nil, err
	}
	unused := slices.DeleteFunc(own, func(v VolumeInfo) bool { return len(v.UsedBy) > 0 })
	if dryRun {
		return unused, nil
	}
	var pruned []VolumeInfo
	for _, v := range unused {
		switch err := m.removeVolume(ctx, g, v.Key); {
		case err == nil:
			pruned = append(pruned, v)
		case !errors.Is(err, sbxerr.VolumeInUse) && !errors.Is(err, sbxerr.VolumeNotFound): // meanwhile
			return pruned, err
		}
	}
	return pruned, nil
}

// removeVolume waits for sandboxes that are being removed.
func (m *Manager) removeVolume(ctx context.Context, g peer.Grant, k volumes.Key) error {
	purge, err := m.takeVolume(ctx, g, k)
	if err != nil {
		return err
	}
	err = errors.Join(m.confirmVolume(ctx, events.VolumeRemoved, k), failpoint("volume/taken"))
	return cmp.Or(purge(), err)
}

// takeVolume takes a volume out of the store as soon as no sandbox uses it.
func (m *Manager) takeVolume(ctx context.Context, g peer.Grant, k volumes.Key) (purge func() error, err error) {
	for {
		var going []*sandbox
		purge, err = m.volumes.Remove(k, func() error {
			var users []string
			if users, going = m.usersOf(g, usesVolume(k)); len(users) > 0 {
				return sbxerr.New(sbxerr.VolumeInUse, "runtime.volume", "volume %q is used by %s", k.Name, strings.Join(users, ", "))
			}
			if len(going) > 0 {
				return errGoing
			}
			return nil
		})
		if !errors.Is(err, errGoing) {
			return purge, err
		}
		if err := awaitGone(ctx, going); err != nil {
			return nil, err
		}
	}
}

var errGoing = errors.New("a sandbox that uses it is being removed")

// usesVolume reports whether a sandbox has a volume. It is known before it opens one.
func usesVolume(k volumes.Key) func(record) bool {
	return func(r record) bool {
		return r.OwnerUID == k.Owner && slices.ContainsFunc(r.Mounts, func(b plan.MountRequest) bool { return b.Type == plan.VolumeType && b.Source == k.Name })
	}
}

// openVolume opens a volume of the caller's for a sandbox, and makes it where there is none.
func (h *host) openVolume(ctx context.Context, g peer.Grant, name string) (*mount.Workspace, error) {
	k := volumes.Key{Owner: g.Caller().UID, Name: name}
	dir, gid, created, err := h.volumes.Open(k, g.Caller().GID, g.Volumes())
	if err != nil {
		return nil, err
	}
	if created {
		if err := h.confirmVolume(ctx, events.VolumeCreated, k); err != nil {
			return nil, errors.Join(err, dir.Close())
		}
	}
	return mount.Opened(dir, mount.Identity{UID: k.Owner, GID: gid})
}

func (m *Manager) grantVolumes(ctx context.Context) (peer.Grant, error) {
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckVolumes()
	}
	return g, err
}

// volumeOf finds out which volume ref means. Those of others are to a user as if they were
// not there.
func (m *Manager) volumeOf(ctx context.Context, ref string) (peer.Grant, volumes.Key, error) {
	g, err := m.grantVolumes(ctx)
	if err != nil {
		return g, volumes.Key{}, err
	}
	k, err := volumes.ParseKey(ref, g.Caller().UID)
	if err == nil && !g.Sees(k.Owner, "") {
		err = sbxerr.New(sbxerr.VolumeNotFound, "runtime.volume", "no volume %q", k.Name)
	}
	return g, k, err
}

func (m *Manager) volumeInfo(g peer.Grant, k volumes.Key) (VolumeInfo, error) {
	v, err := m.volumes.Get(k)
	users, _ := m.usersOf(g, usesVolume(k))
	return VolumeInfo{v, users}, err
}

func (m *Manager) visibleVolumes(g peer.Grant, visible func(volumes.Volume) bool) ([]VolumeInfo, error) {
	all, err := m.volumes.List()
	if err != nil {
		return nil, err
	}
	list := []VolumeInfo{}
	for _, v := range all {
		if visible(v) {
			users, _ := m.usersOf(g, usesVolume(v.Key))
			list = append(list, VolumeInfo{v, users})
		}
	}
	return list, nil
}

// confirmVolume tells of a volume, which belongs to a user.
func (h *host) confirmVolume(ctx context.Context, t events.Type, k volumes.Key) error {
	return h.opts.Events.Confirm(ctx, events.Event{Type: t, Scope: events.Scope{Owner: k.Owner}, Data: events.Data{Volume: k.Name}})
}
