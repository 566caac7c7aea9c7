package runtime

import (
	"context"
	"path/filepath"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/volumes"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// decideMerge notes whether what s wrote to its caches goes into them: e, its own command, ended.
func (h *host) decideMerge(s *sandbox, e *execution) {
	r, result := s.kept(), e.info().Result
	if !r.Preset.Merges(r.Mounts) || result.Reason != ReasonExited || result.ExitCode != 0 {
		return
	}
	s.update(func() { s.record.Merges = true })
	h.keepRecord(s)
}

// mergeCaches gives the caches of a sandbox that has ended what it wrote to them. What cannot be
// merged goes with the sandbox.
func (h *host) mergeCaches(ctx context.Context, r record) {
	for _, c := range plan.CachesIn(r.Mounts) {
		if err := h.mergeCache(ctx, r, c); err != nil {
			h.log.Error("merge what a sandbox wrote to a cache", "sandbox", r.ID, "volume", c.Volume, "err", err)
			d := events.Data{Volume: c.Volume}
			d.Tell(err)
			h.opts.Events.Emit(ctx, r.event(events.VolumeFailed, d))
		}
	}
}

func (h *host) mergeCache(ctx context.Context, r record, c plan.Cache) error {
	dir, gid, err := h.volumes.Dir(volumes.Key{Owner: r.OwnerUID, Name: c.Volume})
	if err != nil {
		return err
	}
	defer dir.Close()
	n, err := h.workspaces.Merge(ctx, workspaces.Merge{
		Journal: r.ID + "-" + filepath.Base(c.Changes), Upper: mount.UpperDir(h.paths.point(r.ID, c.Changes)), Volume: dir,
		Owner: peer.User(r.OwnerUID, gid, nil, 1), Since: r.CreatedAt.UnixNano(),
	})
	if err != nil || n == 0 {
		return err
	}
	return h.opts.Events.Confirm(ctx, r.event(events.VolumeMerged, events.Data{Volume: c.Volume, Changes: n}))
}
