// Package volumes keeps named directories that outlive sandboxes.
//
// A volume belongs to a user of the host, and each user has names of its own. It is the
// directory UID+NAME/data of the store, which belongs to that user and its group on disk.
// With a size it is the directory UID+NAME/disk/data, on a disk in the file UID+NAME/image.
// Only root can pass the store's directory. A name that begins with a dot is that of a
// volume that is half made or half removed.
package volumes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime/owned"
)

// Key names a volume on the host.
type Key = owned.Key

// ParseKey reads NAME, which is a volume of self, or UID+NAME.
func ParseKey(ref string, self uint32) (Key, error) { return owned.ParseKey("volume", ref, self) }

// CheckName refuses what cannot name a volume.
func CheckName(name string) error { return owned.CheckName("volume", name) }

// Volume is one volume.
type Volume struct {
	Key
	CreatedAt time.Time
	Size      disk.Size // zero: nothing bounds it
}

// Store keeps volumes. It is safe for concurrent use by one process.
type Store struct {
	dir   string
	disks disk.Maker
	sums  sums

	mu      sync.Mutex // held while a volume is made, found, or taken away
	serial  int
	purging map[string]bool // names of volumes that are being removed by this process
}

// New returns the store in dir, a directory of the daemon's own with mode 0700.
func New(dir string) *Store {
	return &Store{dir: dir, disks: disk.Maker{Durable: true}, purging: map[string]bool{}}
}

const (
	dataName = "data"
	halfMade = ".new"
	removed  = ".removed-"
)

// List returns all volumes, by name and then by owner.
func (s *Store) List() ([]Volume, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "volumes.list", err)
	}
	var list []Volume
	for _, e := range entries {
		key, err := ParseKey(e.Name(), 0)
		if err != nil || key.String() != e.Name() {
			continue // half made, half removed, or nothing of the daemon's
		}
		if v, err := s.Get(key); err == nil { // else it is removed meanwhile
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b Volume) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
	return list, nil
}

// Get returns a volume. One that is not there has code sbxerr.VolumeNotFound.
func (s *Store) Get(k Key) (Volume, error) {
	st, err := os.Lstat(s.path(k)) // nothing changes it after it was made
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Volume{}, sbxerr.New(sbxerr.VolumeNotFound, "volumes.find", "no volume %q", k.Name)
	case err != nil:
		return Volume{}, sbxerr.Wrap(sbxerr.StateDir, "volumes.find", err)
	}
	size, err := s.place(k).size()
	return Volume{k, st.ModTime(), size}, sbxerr.Wrap(sbxerr.StateDir, "volumes.find", err)
}

// Making is how a volume is made.
type Making struct {
	GID  uint32                    // of its files
	Most int                       // volumes of its owner; 0 is any number
	Size func() (disk.Size, error) // nil: it has none
}

// Create makes a volume. One that is there stays as it is.
func (s *Store) Create(k Key, how Making) (created bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.createLocked(k, how)
}

// Open opens the data of a volume with O_PATH, and makes the volume where there is none.
// gid is its group on disk.
func (s *Store) Open(k Key, how Making) (dir *os.File, gid uint32, created bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if created, err = s.createLocked(k, how); err != nil {
		return nil, 0, false, err
	}
	dir, gid, err = s.dataLocked(k)
	return dir, gid, created, err
}

// data opens the data of a volume that is there with O_PATH. gid is its group on disk.
func (s *Store) data(k Key) (dir *os.File, gid uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dataLocked(k)
}

func (s *Store) dataLocked(k Key) (dir *os.File, gid uint32, err error) {
	const op = "volumes.open"
	data, err := s.place(k).open()
	if err == nil {
		dir, err = owndir.OpenDir(data)
	}
	if err != nil {
		return nil, 0, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, 0, sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, dir.Close()))
	}
	return dir, st.Gid, nil
}

func (s *Store) createLocked(k Key, how Making) (bool, error) {
	const op = "volumes.create"
	if _, err := s.Get(k); !errors.Is(err, sbxerr.VolumeNotFound) {
		return false, err
	}
	if most := how.Most; most > 0 {
		list, err := s.List()
		if err != nil {
			return false, err
		}
		if n := len(slices.DeleteFunc(list, func(v Volume) bool { return v.Owner != k.Owner })); n >= most {
			return false, sbxerr.WithRemedy(sbxerr.Busy, op, fmt.Errorf("uid %d has %d volumes, and may have %d", k.Owner, n, most),
				"remove volumes first: caisson volume rm or prune")
		}
	}
	var size disk.Size
	if how.Size != nil {
		var err error
		if size, err = how.Size(); err != nil {
			return false, err
		}
	}
	at := place(filepath.Join(s.dir, halfMade))
	err := at.remove()
	for _, step := range []func() error{
		func() error { return owndir.Mkdir(string(at), 0o700) },
		func() error { return at.fill(&s.disks, size, int(k.Owner), int(how.GID)) },
		func() error { return owndir.Rename(string(at), k.String()) },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		s.sums.remove(k)
	}
	return err == nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
}

// Remove takes a volume away, unless unused refuses, and returns how to remove its files.
// unused is asked while nobody can open the volume.
func (s *Store) Remove(k Key, unused func() error) (purge func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.Get(k); err != nil {
		return nil, err
	}
	if err := unused(); err != nil {
		return nil, err
	}
	for {
		s.serial++
		name := fmt.Sprintf("%s%d", removed, s.serial)
		if _, err := os.Lstat(filepath.Join(s.dir, name)); err == nil {
			continue // an earlier process began to remove it
		}
		if err := owndir.Rename(s.path(k), name); err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, "volumes.remove", err)
		}
		s.purging[name] = true
		s.sums.remove(k)
		return func() error { return s.purge(name) }, nil
	}
}

func (s *Store) purge(name string) error {
	err := place(filepath.Join(s.dir, name)).remove()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.purging, name)
	return sbxerr.Wrap(sbxerr.StateDir, "volumes.remove", err)
}

// Sweep removes what an earlier process made or removed in part.
func (s *Store) Sweep() error {
	entries, err := os.ReadDir(s.dir)
	s.mu.Lock()
	errs := []error{err, place(filepath.Join(s.dir, halfMade)).remove()}
	s.mu.Unlock()
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), removed) && s.abandoned(e.Name()) {
			errs = append(errs, s.purge(e.Name()))
		}
	}
	return sbxerr.Wrap(sbxerr.StateDir, "volumes.sweep", errors.Join(errs...))
}

// abandoned reports whether nobody works on name, which is then for the caller to remove.
func (s *Store) abandoned(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.purging[name] {
		return false
	}
	s.purging[name] = true
	return true
}

func (s *Store) place(k Key) place { return place(s.path(k)) }

func (s *Store) path(k Key) string { return filepath.Join(s.dir, k.String()) }
