package runtime

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/snapshots"
)

// Snapshots returns the service of the snapshots.
func (m *Manager) Snapshots() *snapshots.Service { return m.snapshots }

// snapshotFleet shows the fleet to the service of snapshots.
type snapshotFleet struct{ *Manager }

// Grant implements snapshots.Fleet.
func (f snapshotFleet) Grant(ctx context.Context) (peer.Grant, error) { return f.grant(ctx) }

// Still implements snapshots.Fleet.
func (f snapshotFleet) Still(ctx context.Context, ref string, work func(context.Context, snapshots.Source) error) error {
	s, err := f.findToEnter(ctx, ref)
	if err != nil {
		return err
	}
	return f.still(ctx, s, func(ctx context.Context) error {
		r := s.kept()
		return work(ctx, snapshots.Source{
			Snapshot: snapshotOf(r, time.Now().Round(0), disk.Use{}), Workspace: r.Workspace, Isolated: !r.unisolated(), Base: r.HostIDBase,
			Image: f.paths.diskImage(s.id), Disk: f.paths.disk(s.id), Root: f.paths.rootfs(s.id), Spec: s.spec,
		})
	})
}

// keepDisk makes a snapshot of the disk of a sandbox that has ended, if that was asked for.
func (h *host) keepDisk(ctx context.Context, id string) error {
	if _, err := os.Lstat(h.paths.diskImage(id)); errors.Is(err, fs.ErrNotExist) { // there is none, or it is kept
		return nil
	}
	mounted, err := mount.IsPoint(h.paths.disk(id))
	if err != nil {
		return err
	}
	r, err := readRecord(h.paths.record(id), h.boot)
	if err != nil { // nobody knows what it was
		return nil
	}
	if mounted && r.Merges {
		h.mergeCaches(ctx, r)
	}
	if mounted && r.Ready && r.Workspace.Cow() && r.Parent == "" {
		return h.workspaces.Keep(ctx, h.changeset(r))
	}
	if !r.Ready || r.Settings.SnapshotOnEnd == "" { // one that was never what was asked for has nothing to keep
		return nil
	}
	k := snapshots.Key{Owner: r.OwnerUID, Name: r.Settings.SnapshotOnEnd}
	return h.snapshots.Keep(ctx, k, h.paths.diskImage(id), h.paths.disk(id), func(use disk.Use) plan.Snapshot { return snapshotOf(r, time.Now().Round(0), use) })
}

// Begin implements snapshots.Fleet.
func (f snapshotFleet) Begin(ctx context.Context, r plan.CreateRequest) (string, error) {
	info, err := f.Create(ctx, r)
	return info.ID, err
}

// Origins implements snapshots.Fleet.
func (f snapshotFleet) Origins(each func(owner uint32, ref string)) {
	for _, s := range f.all() {
		r := s.kept()
		each(r.OwnerUID, r.Settings.From)
		for _, m := range r.Mounts {
			if m.Type == plan.SnapshotType {
				each(r.OwnerUID, m.Source)
			}
		}
	}
}

// End implements snapshots.Fleet.
func (f snapshotFleet) End(ctx context.Context, id string) error {
	_, err := f.Remove(ctx, id, true)
	return err
}

// whileFrozen calls work while all processes of s stand still. If this daemon is killed
// meanwhile, the next one lets them go on.
func (h *host) whileFrozen(ctx context.Context, s *sandbox, work func() error) error {
	group, err := h.group(s.id)
	if err != nil {
		return err
	}
	s.init.SetFrozen(true)
	defer s.init.SetFrozen(false)
	s.update(func() { s.record.Halted = true })
	h.keepRecord(s)
	err = errors.Join(group.Freeze(ctx), failpoint.At("snapshot/frozen"))
	if err == nil {
		err = errors.Join(work(), failpoint.At("snapshot/saved"))
	}
	err = errors.Join(err, thaw(context.WithoutCancel(ctx), group))
	s.update(func() { s.record.Halted = false })
	h.keepRecord(s)
	return err
}

// snapshotOf is what a snapshot keeps of a sandbox beside its disk: what it was asked for, with
// the network policy that it has now.
func snapshotOf(r record, at time.Time, use disk.Use) plan.Snapshot {
	kept := r.Settings.Kept()
	if r.Began != nil {
		kept = kept.On(*r.Began)
	}
	kept.Network, kept.Allow, kept.Deny = r.Asked.Mode, r.Asked.Allow, r.Asked.Deny
	kept.DNS, kept.Routes, kept.AllowECH, kept.Labels = r.Asked.DNS, r.Asked.Routes, r.Asked.AllowECH, r.Labels
	return plan.Snapshot{
		CreatedAt: at, SandboxID: r.ID, SandboxName: r.Name, Image: r.Image, ImageDigest: r.ImageDigest, ChainID: r.ChainID,
		WritableRoot: r.WritableRoot, Size: r.Limits.Disk(), UsedBytes: use.UsedBytes, IDBase: r.diskBase(), DiskSince: r.DiskSince, Request: kept,
	}
}

// diskBase is the first id of the block whose ids are on the disk of a sandbox.
func (r record) diskBase() uint32 {
	if r.DiskIDBase != 0 {
		return r.DiskIDBase
	}
	return r.HostIDBase
}
