package snapshots

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Fleet has the sandboxes of which snapshots are made.
type Fleet interface {
	// Busy counts a call until done is called.
	Busy() (done func())
	// Grant is what the caller in ctx may do.
	Grant(ctx context.Context) (peer.Grant, error)
	// Still calls work with a sandbox, whose processes stand still meanwhile.
	Still(ctx context.Context, ref string, work func(context.Context, Source) error) error
	// Begin makes a sandbox and returns its ID; End removes it.
	Begin(ctx context.Context, r plan.CreateRequest) (id string, err error)
	End(ctx context.Context, id string) error
	// Origins calls each with the snapshots, or "", that a sandbox of a user began with or mounts.
	Origins(each func(owner uint32, ref string))
	// CheckRoom refuses a disk that the host has no room for.
	CheckRoom(bytes int64) error
	// Rewind gives a live sandbox the files of a snapshot, without a word of it.
	Rewind(ctx context.Context, ref string, from plan.Origin) (Rewound, error)
}

// Images has the images that snapshots are of, and reads archives as it reads those of images.
type Images interface {
	// Spool makes a file that has no name, for an archive of at most so many bytes.
	Spool() (f *os.File, most int64, err error)
	// Open opens the image of a digest, whoever has it, to read it.
	Open(ctx context.Context, digest string) (*os.Root, error)
	// Changes reads an archive of changes to an image. find names the digest of that by what the
	// archive says. apply gets the image, and the changes as a tar, which it reads to its end.
	Changes(ctx context.Context, r io.Reader, find func(image.Config) (digest string, err error), apply func(images.Stored, io.Reader) error) error
}

// Service manages snapshots for callers.
type Service struct {
	store  *Store
	fleet  Fleet
	events *events.Bus
	images Images
	disks  *disk.Maker

	save      func(ctx context.Context, from Source, at, file string) (plan.Snapshot, error)
	retention func() Retention
	log       *slog.Logger
}

// NewService returns the Service of the snapshots in a store.
func NewService(store *Store, fleet Fleet, imgs Images, disks *disk.Maker, bus *events.Bus, retention func() Retention, log *slog.Logger) *Service {
	s := &Service{store: store, fleet: fleet, events: bus, images: imgs, disks: disks, retention: retention, log: log}
	s.save = s.saveFiles
	return s
}

// Create makes a snapshot of a sandbox, or of the directory at, if that is given. The name is made up
// where none is given. The processes of the sandbox stand still meanwhile.
func (s *Service) Create(ctx context.Context, ref, name, at string) (Info, error) {
	defer s.fleet.Busy()()
	unnamed := name == ""
	if unnamed {
		name = strings.ToLower(rand.Text())
	}
	g, err := s.grant(ctx)
	if err == nil {
		err = CheckName(name)
	}
	k := Key{Owner: g.Caller().UID, Name: name}
	if err == nil && at != "" {
		err = CheckPath(at)
	}
	if err == nil {
		err = s.bound(g)
	}
	if err != nil {
		return Info{}, err
	}
	info, err := s.store.Create(k, func(file string) (snapshot plan.Snapshot, err error) {
		err = s.fleet.Still(ctx, ref, func(ctx context.Context, from Source) error {
			snapshot, err = s.save(ctx, from, at, file)
			return err
		})
		snapshot.Unnamed = unnamed
		return snapshot, err
	})
	if err != nil {
		return Info{}, err
	}
	s.Prune(ctx)
	return info, s.tell(ctx, events.SnapshotCreated, k, "")
}

// Admit refuses the name, if there is one, of a snapshot that the holder of g may not make later.
func (s *Service) Admit(g peer.Grant, name string) error {
	if name == "" {
		return nil
	}
	if err := errors.Join(g.CheckSnapshots(), CheckName(name)); err != nil {
		return err
	}
	return s.bound(g)
}

// Keep makes the snapshot of a sandbox that has ended, of its disk in image, which is mounted at
// point or nowhere. The caller removes image then. A daemon that is killed before has the next one
// call Keep again. A name that is taken by now is followed by letters.
func (s *Service) Keep(ctx context.Context, k Key, image, point string, of func(disk.Use) plan.Snapshot) error {
	if kept, err := s.store.has(k, image); err != nil || kept {
		return err
	}
	info, err := s.store.Keep(k, func(file string) (plan.Snapshot, error) {
		use, err := disk.UseOfFile(image, point)
		if err == nil {
			err = errors.Join(disk.TakeOff(point), failpoint.At("keep/off"))
		}
		if err == nil {
			err = errors.Join(owndir.Link(image, file), failpoint.At("keep/linked"))
		}
		return of(use), err
	})
	if err = errors.Join(err, failpoint.At("keep/kept")); err != nil {
		return err
	}
	s.Prune(ctx)
	return s.tell(ctx, events.SnapshotCreated, info.Key, "")
}

// bound bounds how many snapshots a user has.
func (s *Service) bound(g peer.Grant) error {
	most := g.Snapshots()
	if most == 0 {
		return nil
	}
	all, err := s.store.List()
	if err != nil {
		return err
	}
	owner := g.Caller().UID
	if n := len(slices.DeleteFunc(all, func(i Info) bool { return i.Owner != owner })); n >= most {
		return sbxerr.WithRemedy(sbxerr.Busy, "snapshots.create", fmt.Errorf("uid %d has %d snapshots, and may have %d", owner, n, most),
			"remove snapshots first: caisson snapshot rm")
	}
	return nil
}

// List returns the snapshots of the caller. Root sees all.
func (s *Service) List(ctx context.Context) ([]Info, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.store.List()
	return slices.DeleteFunc(all, func(i Info) bool { return !g.Sees(i.Owner, "") }), err
}

// Inspect returns one snapshot. Root may name that of another user UID+NAME.
func (s *Service) Inspect(ctx context.Context, ref string) (Info, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx)
	if err != nil {
		return Info{}, err
	}
	return s.find(g, ref)
}

// Remove removes a snapshot. Sandboxes that began with it keep what they have.
func (s *Service) Remove(ctx context.Context, ref string) error {
	defer s.fleet.Busy()()
	info, err := s.Inspect(ctx, ref)
	if err != nil {
		return err
	}
	if err := s.store.Remove(info.Key); err != nil {
		return err
	}
	return s.tell(ctx, events.SnapshotRemoved, info.Key, "")
}

// Origin returns the snapshot that a request of the holder of g begins with; nil where ref is
// empty.
func (s *Service) Origin(g peer.Grant, ref string) (*plan.Origin, error) {
	if ref == "" {
		return nil, nil
	}
	o, err := s.origin(g, ref)
	if err == nil && o.Path != "" {
		err = sbxerr.WithRemedy(sbxerr.SnapshotMismatch, "snapshots.origin", fmt.Errorf("snapshot %q has the directory %q alone", ref, sbxerr.Clip(o.Path)),
			"mount it in one instead: caisson create --mount type=snapshot,src="+ref+",dst="+o.Path)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (s *Service) origin(g peer.Grant, ref string) (*plan.Origin, error) {
	if err := g.CheckSnapshots(); err != nil {
		return nil, err
	}
	info, err := s.find(g, ref)
	if err != nil {
		return nil, err
	}
	return &plan.Origin{Snapshot: info.Snapshot, Name: ref, File: s.store.File(info.Key)}, nil
}

// NeedingImages are the snapshots that are of use only with their image.
func (s *Service) NeedingImages() []Info {
	all, _ := s.store.List() // a store that cannot be read makes no sandbox either
	return slices.DeleteFunc(all, func(i Info) bool { return !i.WritableRoot })
}

// Sweep removes what changes left that were killed half way.
func (s *Service) Sweep() error { return s.store.Sweep() }

func (s *Service) grant(ctx context.Context) (peer.Grant, error) {
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = g.CheckSnapshots()
	}
	return g, err
}

// find finds out which snapshot ref means. Those of others are to a user as if they were not
// there.
func (s *Service) find(g peer.Grant, ref string) (Info, error) {
	k, err := ParseKey(ref, g.Caller().UID)
	if err != nil {
		return Info{}, err
	}
	info, err := s.store.Get(k)
	if !g.Sees(k.Owner, "") || errors.Is(err, sbxerr.SnapshotNotFound) {
		return Info{}, sbxerr.New(sbxerr.SnapshotNotFound, "snapshots.find", "no snapshot %q", k.Name)
	}
	return info, err
}

// tell tells of a snapshot, which belongs to a user.
func (s *Service) tell(ctx context.Context, t events.Type, k Key, reason string) error {
	return s.events.Confirm(ctx, events.Event{Type: t, Scope: events.Scope{Owner: k.Owner}, Data: events.Data{Snapshot: k.Name, Reason: reason}})
}
