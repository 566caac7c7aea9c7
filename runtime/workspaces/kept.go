package workspaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/apply"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Retention bounds the changesets of each user. With 0 of them none is kept.
type Retention struct {
	Most  int
	Bytes int64
	For   time.Duration
}

// Ending is a sandbox that has ended, of which the disk is still mounted.
type Ending struct {
	Changeset
	Image, Point string // of its disk
	Upper        string // directory of the layer
	Applied      string // file with what was applied
}

// Keep makes a changeset of what a sandbox changed, if it did.
func (s *Service) Keep(ctx context.Context, e Ending) error {
	kept, err := s.keep(ctx, e)
	if err != nil {
		var d events.Data
		d.Tell(err)
		s.events.Emit(ctx, e.event(events.ChangesetFailed, d))
		return err
	}
	if !kept {
		return nil
	}
	err = s.events.Confirm(ctx, e.event(events.ChangesetKept, events.Data{}))
	s.Prune(ctx)
	return err
}

// keep reports whether there was something to keep.
func (s *Service) keep(ctx context.Context, e Ending) (bool, error) {
	const op = "workspaces.keep"
	if s.rules().Retention.Most == 0 {
		return false, nil
	}
	if empty, err := isEmpty(ctx, e.Upper); empty || err != nil {
		return false, sbxerr.Wrap(sbxerr.Disk, op, err)
	}
	if same, err := s.isSame(ctx, e); same || err != nil {
		return false, sbxerr.Wrap(sbxerr.Disk, op, err)
	}
	rel, err := filepath.Rel(e.Point, e.Upper)
	if err != nil {
		return false, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	e.Changeset.Upper, e.Changeset.Image, e.Changeset.Point, e.KeptAt = rel, e.Image, e.Point, time.Now().Round(0)
	return true, sbxerr.Wrap(sbxerr.StateDir, op, s.store.keep(e))
}

// isSame reports whether the host has all of it. Where the directory of the host cannot be
// looked at, it has not.
func (s *Service) isSame(ctx context.Context, e Ending) (bool, error) {
	dir, err := openAt(e.Dir)
	if err != nil {
		return false, nil
	}
	defer dir.Close()
	if e.checkBase(dir) != nil {
		return false, nil
	}
	lower, err := mount.CloneDir(dir)
	if err != nil {
		return false, nil
	}
	applied, err := apply.ReadApplied(e.Applied)
	upper, openErr := openAt(e.Upper)
	if err = errors.Join(err, openErr); err != nil {
		return false, errors.Join(err, lower.Close())
	}
	layers := changes.Layers{Upper: upper, Lower: lower}
	list, more, err := changes.Of(ctx, layers, changes.Options{Most: 1, Applied: applied})
	return len(list) == 0 && !more, errors.Join(err, layers.Close())
}

func (c Changeset) event(t events.Type, d events.Data) events.Event {
	d.SandboxID, d.Name, d.Session, d.Workspace = c.ID, c.Name, c.Session, c.Dir
	return events.Event{Type: t, Scope: events.Scope{Owner: c.Owner}, Data: d}
}

// Prune removes what is past the retention, the oldest first. What is in use stays until the
// next time.
func (s *Service) Prune(ctx context.Context) {
	all, err := s.store.list()
	if err != nil {
		s.log.Error("list changesets", "err", err)
	}
	most := s.rules().Retention
	count, bytes := map[uint32]int{}, map[uint32]int64{}
	for _, c := range all {
		count[c.Owner]++
		bytes[c.Owner] += c.Bytes
		if count[c.Owner] <= most.Most && bytes[c.Owner] <= most.Bytes && time.Since(c.KeptAt) < most.For {
			continue
		}
		release, ok := s.locks.try(c.ID)
		if !ok {
			continue
		}
		if err := s.dropLocked(ctx, c, "expired"); err != nil {
			s.log.Error("remove a changeset past its retention", "sandbox", c.ID, "err", err)
		}
		release()
	}
}

// drop removes a changeset. Nothing is applied from it meanwhile.
func (s *Service) drop(ctx context.Context, c Changeset, reason string) error {
	release, err := s.locks.acquire(ctx, c.ID)
	if err != nil {
		return err
	}
	defer release()
	return s.dropLocked(ctx, c, reason)
}

// dropLocked is drop with the lock of the changeset held.
func (s *Service) dropLocked(ctx context.Context, c Changeset, reason string) error {
	if err := s.finish(c.ID, s.store.path(c.ID, appliedName)); err != nil {
		s.log.Error("end an apply of a changeset that goes", "sandbox", c.ID, "err", err)
	}
	if err := s.store.remove(c.ID); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "workspaces.remove", err)
	}
	return s.events.Confirm(ctx, c.event(events.ChangesetRemoved, events.Data{Reason: reason}))
}

// Has reports whether a sandbox left a changeset.
func (s *Service) Has(id string) bool {
	_, err := os.Lstat(s.store.path(id, metaName))
	return err == nil
}

// List returns the changesets of the caller, the newest first. Root sees all.
func (s *Service) List(ctx context.Context) ([]Changeset, error) {
	defer s.fleet.Busy()()
	g, err := s.fleet.Grant(ctx)
	if err != nil {
		return nil, err
	}
	return s.seen(g)
}

func (s *Service) seen(g peer.Grant) ([]Changeset, error) {
	all, err := s.store.list()
	return slices.DeleteFunc(all, func(c Changeset) bool { return !g.Sees(c.Owner, "") }), err
}

// Discard removes a changeset.
func (s *Service) Discard(ctx context.Context, ref string) error {
	defer s.fleet.Busy()()
	g, err := s.fleet.Grant(ctx)
	if err != nil {
		return err
	}
	c, err := s.changeset(g, ref)
	if err != nil {
		return err
	}
	return s.drop(ctx, c, "discarded")
}

// changeset finds a changeset by ID, the beginning of one, or the name of its sandbox: the
// newest of them. Those of others are to a user as if they were not there.
func (s *Service) changeset(g peer.Grant, ref string) (Changeset, error) {
	const op = "workspaces.find"
	seen, err := s.seen(g)
	if err != nil {
		return Changeset{}, err
	}
	var begin []Changeset
	for _, c := range seen {
		if c.ID == ref || c.Name == ref {
			return c, nil
		}
		if strings.HasPrefix(c.ID, ref) {
			begin = append(begin, c)
		}
	}
	switch len(begin) {
	case 0:
		return Changeset{}, sbxerr.New(sbxerr.ChangesetNotFound, op, "no changeset %q", sbxerr.Clip(ref))
	case 1:
		return begin[0], nil
	}
	return Changeset{}, sbxerr.WithRemedy(sbxerr.ChangesetNotFound, op, fmt.Errorf("%d changesets begin with %q", len(begin), sbxerr.Clip(ref)), "give more letters of the ID")
}

// sealed is the workspace of a changeset.
func (s *Service) sealed(c Changeset) Workspace {
	return Workspace{
		ID: c.ID, Name: c.Name, Dir: c.Dir, Base: c.Base, Applied: s.store.path(c.ID, appliedName), kept: &c,
		Event: func(d events.Data) events.Event { return c.event(events.WorkspaceApplied, d) },
		Still: func(ctx context.Context, work func(context.Context) error) error { return work(ctx) },
	}
}
