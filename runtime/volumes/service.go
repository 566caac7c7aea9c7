package volumes

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Fleet has the sandboxes that use volumes.
type Fleet interface {
	// Busy counts a call until done is called.
	Busy() (done func())
	// Grant is what the caller in ctx may do.
	Grant(ctx context.Context) (peer.Grant, error)
	// CheckRoom refuses a disk of that size where the host has no room for it.
	CheckRoom(bytes int64) error
	// AdmitDisk refuses a disk beyond the quota of g's owner. It calls admitted before another
	// disk of that owner can be admitted.
	AdmitDisk(g peer.Grant, bytes int64, admitted func()) error
	// UsersOf names the sandboxes that use a volume, as far as g may know of them. A sandbox
	// that is being removed is in going instead, by what is closed when it is gone.
	UsersOf(g peer.Grant, k Key) (users []string, going []<-chan struct{})
}

// Service manages volumes for callers.
type Service struct {
	store  *Store
	fleet  Fleet
	events *events.Bus
	size   int64 // of what is made without one; 0 is none
}

// NewService returns the Service of the volumes in a store. size is that of a volume for which
// none is asked; 0 is none.
func NewService(store *Store, fleet Fleet, bus *events.Bus, size int64) *Service {
	return &Service{store, fleet, bus, size}
}

// Info is a volume, the names of the sandboxes that use it, and how full it is.
type Info struct {
	Volume
	UsedBy []string
	Use    disk.Use // zero without a size
}

// Create makes a volume of the caller's. One that is there stays as it is, and is refused where
// another size is asked for. A zero size asks for none.
func (s *Service) Create(ctx context.Context, name string, size disk.Size) (Info, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx)
	if err == nil {
		err = CheckName(name)
	}
	if err == nil && size != (disk.Size{}) {
		err = size.Check()
	}
	if err != nil {
		return Info{}, err
	}
	k := Key{Owner: g.Caller().UID, Name: name}
	created, err := s.store.Create(k, s.making(g, k, size))
	if created {
		err = errors.Join(err, s.confirm(ctx, events.VolumeCreated, k))
	}
	if err != nil {
		return Info{}, err
	}
	v, err := s.info(g, k)
	if err == nil && !created {
		err = checkSize(v.Volume, size)
	}
	if err != nil {
		return Info{}, err
	}
	return v, nil
}

// making is how the volume k is made under g.
func (s *Service) making(g peer.Grant, k Key, size disk.Size) Making {
	size.Bytes = cmp.Or(size.Bytes, s.size)
	return Making{GID: g.Caller().GID, Most: g.Volumes(), Size: func() (disk.Size, error) {
		if size.Bytes == 0 {
			return size, nil
		}
		if err := s.fleet.CheckRoom(size.Bytes); err != nil {
			return size, err
		}
		return size, s.fleet.AdmitDisk(g, size.Bytes, func() { s.store.sums.add(k, size.Bytes) })
	}}
}

// List returns the volumes of the caller. Root sees all.
func (s *Service) List(ctx context.Context) ([]Info, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx)
	if err != nil {
		return nil, err
	}
	return s.visible(g, func(v Volume) bool { return g.Sees(v.Owner, "") })
}

// Inspect returns one volume. Root may name that of another user UID+NAME.
func (s *Service) Inspect(ctx context.Context, ref string) (Info, error) {
	defer s.fleet.Busy()()
	g, k, err := s.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	return s.info(g, k)
}

// Remove removes a volume that no sandbox uses, with all files in it.
func (s *Service) Remove(ctx context.Context, ref string) error {
	defer s.fleet.Busy()()
	g, k, err := s.find(ctx, ref)
	if err != nil {
		return err
	}
	return s.remove(ctx, g, k)
}

// Prune removes the caller's volumes that no sandbox uses. With dryRun it only
// returns them.
func (s *Service) Prune(ctx context.Context, dryRun bool) ([]Info, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx)
	if err != nil {
		return nil, err
	}
	own, err := s.visible(g, func(v Volume) bool { return v.Owner == g.Caller().UID })
	if err != nil {
		return nil, err
	}
	unused := slices.DeleteFunc(own, func(v Info) bool { return len(v.UsedBy) > 0 })
	if dryRun {
		return unused, nil
	}
	var pruned []Info
	for _, v := range unused {
		switch err := s.remove(ctx, g, v.Key); {
		case err == nil:
			pruned = append(pruned, v)
		case !errors.Is(err, sbxerr.VolumeInUse) && !errors.Is(err, sbxerr.VolumeNotFound): // meanwhile
			return pruned, err
		}
	}
	return pruned, nil
}

// remove waits for sandboxes that are being removed.
func (s *Service) remove(ctx context.Context, g peer.Grant, k Key) error {
	purge, err := s.take(ctx, g, k)
	if err != nil {
		return err
	}
	err = errors.Join(s.confirm(ctx, events.VolumeRemoved, k), failpoint.At("volume/taken"))
	return cmp.Or(purge(), err)
}

// take takes a volume out of the store as soon as no sandbox uses it.
func (s *Service) take(ctx context.Context, g peer.Grant, k Key) (purge func() error, err error) {
	for {
		var going []<-chan struct{}
		purge, err = s.store.Remove(k, func() error {
			var users []string
			if users, going = s.fleet.UsersOf(g, k); len(users) > 0 {
				return sbxerr.New(sbxerr.VolumeInUse, "volumes.find", "volume %q is used by %s", k.Name, strings.Join(users, ", "))
			}
			if len(going) > 0 {
				return errGoing
			}
			return nil
		})
		if !errors.Is(err, errGoing) {
			return purge, err
		}
		for _, gone := range going {
			select {
			case <-gone:
			case <-ctx.Done():
				return nil, sbxerr.Wrap(sbxerr.Canceled, "volumes.remove", context.Cause(ctx))
			}
		}
	}
}

var errGoing = errors.New("a sandbox that uses it is being removed")

// Open opens a volume of the caller's for a sandbox, and makes it where there is none.
func (s *Service) Open(ctx context.Context, g peer.Grant, name string) (*mount.Workspace, error) {
	k := Key{Owner: g.Caller().UID, Name: name}
	dir, gid, created, err := s.store.Open(k, s.making(g, k, disk.Size{}))
	if err != nil {
		return nil, err
	}
	if created {
		if err := s.confirm(ctx, events.VolumeCreated, k); err != nil {
			return nil, errors.Join(err, dir.Close())
		}
	}
	return mount.Opened(dir, mount.Identity{UID: k.Owner, GID: gid})
}

// Dir opens the files of a volume that is there, with O_PATH. gid is its group on disk.
func (s *Service) Dir(k Key) (dir *os.File, gid uint32, err error) { return s.store.data(k) }

func (s *Service) grant(ctx context.Context) (peer.Grant, error) {
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = g.CheckVolumes()
	}
	return g, err
}

// find finds out which volume ref means. Those of others are to a user as if they were
// not there.
func (s *Service) find(ctx context.Context, ref string) (peer.Grant, Key, error) {
	g, err := s.grant(ctx)
	if err != nil {
		return g, Key{}, err
	}
	k, err := ParseKey(ref, g.Caller().UID)
	if err == nil && !g.Sees(k.Owner, "") {
		err = sbxerr.New(sbxerr.VolumeNotFound, "volumes.find", "no volume %q", k.Name)
	}
	return g, k, err
}

func (s *Service) info(g peer.Grant, k Key) (Info, error) {
	v, err := s.store.Get(k)
	if err != nil {
		return Info{}, err
	}
	return s.tell(g, v)
}

func (s *Service) tell(g peer.Grant, v Volume) (Info, error) {
	users, _ := s.fleet.UsersOf(g, v.Key)
	use, err := s.store.place(v.Key).use(v.Size)
	return Info{v, users, use}, err
}

func (s *Service) visible(g peer.Grant, visible func(Volume) bool) ([]Info, error) {
	all, err := s.store.List()
	if err != nil {
		return nil, err
	}
	list := []Info{}
	for _, v := range all {
		if visible(v) {
			told, _ := s.tell(g, v) // Inspect says what is wrong with one
			list = append(list, told)
		}
	}
	return list, nil
}

// confirm tells of a volume, which belongs to a user.
func (s *Service) confirm(ctx context.Context, t events.Type, k Key) error {
	return s.events.Confirm(ctx, events.Event{Type: t, Scope: events.Scope{Owner: k.Owner}, Data: events.Data{Volume: k.Name}})
}

// Sweep removes what changes left that were killed half way.
func (s *Service) Sweep() error { return s.store.Sweep() }
