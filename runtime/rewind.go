package runtime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/layers"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/snapshots"
)

// Rewind implements snapshots.Fleet.
func (f snapshotFleet) Rewind(ctx context.Context, ref string, from plan.Origin) (done snapshots.Rewound, err error) {
	s, err := f.findToEnter(ctx, ref)
	if err != nil {
		return done, err
	}
	g, err := f.grant(ctx)
	if err == nil && !s.identity().of(g) {
		err = sbxerr.WithRemedy(sbxerr.Peer, "runtime.rewind", fmt.Errorf("sandbox %s is another user's, who would get files of yours", ref), "have its owner rewind it")
	}
	if err != nil {
		return done, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	r, err := s.accepting()
	if err == nil {
		err = snapshots.Target{Name: r.Name, ImageDigest: r.ImageDigest, Size: r.Limits.Disk(), Writable: r.WritableRoot, Cow: r.Workspace.Cow(), Command: r.forCommand()}.Check(from)
	}
	if err == nil {
		err = f.roomFor("a copy of the snapshot", from.UsedBytes)
	}
	if err != nil {
		return done, err
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	s.update(func() { s.rewinds = true })
	defer s.update(func() { s.rewinds = false })
	running := slices.DeleteFunc(s.executions(), (*execution).isDone)
	done.Event = r.event(events.SandboxRewound, events.Data{})
	done.Processes, err = f.rewind(ctx, s, from, func(snapshots.Live) error {
		s.update(func() { s.record.Rewinding = &from.IDBase })
		f.keepRecord(s)
		return f.finishRewind(s)
	})
	for _, e := range running {
		if err == nil {
			done.Execs = append(done.Execs, number(e.number()))
			err = wait(ctx, e.done)
		}
	}
	return done, s.orEnded(err)
}

// updateDisk gives a sandbox of the pool the files of the snapshot that it is to begin with. Until it
// is all that it is taken for, a later daemon removes it.
func (h *host) updateDisk(ctx context.Context, s *sandbox, c *change) (undo func() error, err error) {
	if c.plan == nil || c.plan.From == nil {
		return nil, nil
	}
	s.update(func() { s.record.Pooled = true })
	_, err = h.rewind(ctx, s, *c.plan.From, snapshots.Live.Swap)
	s.update(func() { s.record.Pooled, s.stale = false, true })
	return nil, err
}

// rewind gives s the disk of a snapshot, and returns how many processes ended before. swap begins
// when nothing but PID 1 is left. s.changing is held.
func (h *host) rewind(ctx context.Context, s *sandbox, from plan.Origin, swap func(snapshots.Live) error) (ended int, err error) {
	live, err := h.liveDisk(s)
	group, e := h.group(s.id)
	if err = errors.Join(err, e); err != nil {
		return 0, err
	}
	ids, err := h.idsFrom(from.IDBase, s)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(live.Prepare(ctx, from, ids), ids.Close()); err != nil {
		return 0, err
	}
	return live.Replace(snapshots.Steps{
		End:       func() (int, error) { return h.killOthers(ctx, s) },
		Still:     func(work func() error) error { return h.whileFrozen(ctx, s, work) },
		Processes: group.Procs,
		Begin:     func() error { return swap(live) },
	})
}

// finishRewind gives s, of which only PID 1 is left, the files that it is to get, also where an earlier
// daemon began with it. What was only prepared goes.
func (h *host) finishRewind(s *sandbox) error {
	r := s.kept()
	if r.Limits.DiskBytes == 0 {
		return nil
	}
	live, err := h.liveDisk(s)
	if err == nil && r.Rewinding == nil {
		return live.Drop()
	}
	if err = errors.Join(err, live.Swap()); err != nil {
		s.end(err) // it is not as it was declared
		return err
	}
	s.update(func() {
		s.record.DiskIDBase, s.record.DiskSince, s.record.Rewinding, s.stale = *r.Rewinding, time.Now().Round(0), nil, true
	})
	h.keepRecord(s)
	return nil
}

// liveDisk is what the disk and the root of s are replaced by.
func (h *host) liveDisk(s *sandbox) (snapshots.Live, error) {
	r := s.kept()
	ids, err := h.blockNS(s.block)
	root := mount.Root{Layers: layers.Paths(r.Layers), Private: h.paths.private(s.id), Scratch: h.paths.layers(s.id), Target: h.paths.rootfs(s.id), IDs: ids, Disk: h.paths.disk(s.id)}
	var overlays []mount.Cow
	for _, b := range plan.CowMounts(r.Mounts) {
		c := h.cowOf(s, b)
		if b.Snapshot {
			c.Lower = filepath.Join(c.Lower, plan.DiskWorkspace)
		}
		overlays = append(overlays, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshots.Live{Overlays: overlays, Image: h.paths.diskImage(s.id), Root: root, Base: s.block.Base, PID: s.process.pid, Process: s.process.file, Spec: s.spec, Log: h.log.With("sandbox", s.id)}, err
}
