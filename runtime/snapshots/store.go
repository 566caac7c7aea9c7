// Package snapshots keeps disks of sandboxes as they were once.
//
// A snapshot belongs to a user of the host, and each user has names of its own. It is the
// directory UID+NAME of the store, with a sparse copy of the disk and what is known of it.
// Only root can pass the store's directory. A name that begins with a dot is that of a
// snapshot that is half made or half removed.
package snapshots

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/owned"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Key names a snapshot on the host.
type Key = owned.Key

// ParseKey reads NAME, which is a snapshot of self, or UID+NAME.
func ParseKey(ref string, self uint32) (Key, error) { return owned.ParseKey("snapshot", ref, self) }

// CheckName refuses what cannot name a snapshot.
func CheckName(name string) error { return owned.CheckName("snapshot", name) }

// Info is one snapshot.
type Info struct {
	Key
	plan.Snapshot
}

// Store keeps snapshots. It is safe for concurrent use by one process.
type Store struct {
	dir string

	mu      sync.Mutex // held while a snapshot gets its name or loses it
	serial  int
	working map[string]bool // names of what this process makes or removes
}

// NewStore returns the store in dir, a directory of the daemon's own with mode 0700.
func NewStore(dir string) *Store { return &Store{dir: dir, working: map[string]bool{}} }

const (
	diskName = "disk"
	metaName = "snapshot.json"
	halfDone = "." // what a half made or half removed one begins with

	// version is that of snapshot.json. A later daemon may know more.
	version = 1
	maxMeta = 4 << 20 // bytes of one with the longest environment and rules
)

type document struct {
	Version int `json:"version"`
	plan.Snapshot
}

// Create makes a snapshot: save writes the disk to a new file. A name that is taken is
// refused before.
func (s *Store) Create(k Key, save func(file string) (plan.Snapshot, error)) (_ Info, err error) {
	const op = "snapshots.create"
	if _, err := s.Get(k); !errors.Is(err, sbxerr.SnapshotNotFound) {
		return Info{}, cmp.Or(err, taken(k))
	}
	at, done := s.begin()
	defer done()
	defer func() {
		if err != nil {
			err = errors.Join(err, owndir.RemoveTree(at))
		}
	}()
	snapshot, err := fill(at, save)
	if err != nil {
		return Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(s.path(k)); err == nil {
		return Info{}, taken(k)
	}
	return Info{k, snapshot}, sbxerr.Wrap(sbxerr.StateDir, op, owndir.Rename(at, k.String()))
}

// Keep is Create of what cannot be made a second time. A name that is taken is followed by
// letters.
func (s *Store) Keep(k Key, save func(file string) (plan.Snapshot, error)) (Info, error) {
	at, done := s.begin()
	defer done()
	snapshot, err := fill(at, save)
	if err != nil {
		return Info{}, errors.Join(err, owndir.RemoveTree(at))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(s.path(k)); err == nil {
		snapshot.Unnamed = true
		if err := writeMeta(at, snapshot); err != nil {
			return Info{}, err
		}
		k.Name = k.Name[:min(len(k.Name), maxName-letters-1)] + "-" + strings.ToLower(rand.Text()[:letters])
	}
	return Info{k, snapshot}, sbxerr.Wrap(sbxerr.StateDir, "snapshots.keep", owndir.Rename(at, k.String()))
}

// has reports whether k has the disk in image already.
func (s *Store) has(k Key, image string) (bool, error) {
	of, err := os.Lstat(image)
	kept, keptErr := os.Lstat(s.File(k))
	return err == nil && keptErr == nil && os.SameFile(of, kept), sbxerr.Wrap(sbxerr.StateDir, "snapshots.keep", err)
}

// The bounds of a name that Keep makes up.
const (
	maxName = 128
	letters = 12
)

// fill makes the directory of a snapshot.
func fill(at string, save func(file string) (plan.Snapshot, error)) (plan.Snapshot, error) {
	const op = "snapshots.create"
	if err := owndir.Mkdir(at, 0o700); err != nil {
		return plan.Snapshot{}, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	snapshot, err := save(filepath.Join(at, diskName))
	if err != nil {
		return plan.Snapshot{}, err
	}
	if err := syncFile(filepath.Join(at, diskName)); err != nil { // a snapshot outlives the boot
		return snapshot, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return snapshot, writeMeta(at, snapshot)
}

func writeMeta(at string, snapshot plan.Snapshot) error {
	data, err := json.Marshal(document{version, snapshot})
	if err == nil {
		err = os.WriteFile(filepath.Join(at, metaName), data, 0o600)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "snapshots.create", err)
}

func taken(k Key) error {
	return sbxerr.WithRemedy(sbxerr.Exists, "snapshots.create", fmt.Errorf("there is a snapshot %q", k.Name), "choose another name, or remove that one: caisson snapshot rm "+k.Name)
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// begin returns a path for something half done, and how to say that it is over.
func (s *Store) begin() (path string, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.serial++
		name := halfDone + strconv.Itoa(s.serial)
		if _, err := os.Lstat(filepath.Join(s.dir, name)); err == nil {
			continue // an earlier process began it
		}
		s.working[name] = true
		return filepath.Join(s.dir, name), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.working, name)
		}
	}
}

// List returns all snapshots, the newest first.
func (s *Store) List() ([]Info, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "snapshots.list", err)
	}
	var list []Info
	for _, e := range entries {
		key, err := ParseKey(e.Name(), 0)
		if err != nil || key.String() != e.Name() {
			continue // half done, or nothing of the daemon's
		}
		if info, err := s.Get(key); err == nil { // else it is removed meanwhile, or of a later version
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
	return list, nil
}

// Get returns a snapshot. One that is not there has code sbxerr.SnapshotNotFound.
func (s *Store) Get(k Key) (Info, error) {
	const op = "snapshots.find"
	data, err := owndir.ReadFile(filepath.Join(s.path(k), metaName), maxMeta)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, sbxerr.New(sbxerr.SnapshotNotFound, op, "no snapshot %q", k.Name)
	}
	var d document
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err == nil && d.Version != version {
		err = fmt.Errorf("snapshot %q is of version %d; this daemon knows %d", k.Name, d.Version, version)
	}
	return Info{k, d.Snapshot}, sbxerr.Wrap(sbxerr.StateDir, op, err)
}

// File is the disk of a snapshot.
func (s *Store) File(k Key) string { return filepath.Join(s.path(k), diskName) }

// Remove removes a snapshot. Sandboxes that began with it have a copy.
func (s *Store) Remove(k Key) error {
	if _, err := os.Lstat(s.path(k)); errors.Is(err, fs.ErrNotExist) {
		return sbxerr.New(sbxerr.SnapshotNotFound, "snapshots.remove", "no snapshot %q", k.Name)
	}
	at, done := s.begin()
	defer done()
	s.mu.Lock()
	err := owndir.Rename(s.path(k), filepath.Base(at))
	s.mu.Unlock()
	if err == nil {
		err = owndir.RemoveTree(at)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "snapshots.remove", err)
}

// Sweep removes what an earlier process made or removed in part.
func (s *Store) Sweep() error {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), halfDone) && !s.working[e.Name()] {
			errs = append(errs, owndir.RemoveTree(filepath.Join(s.dir, e.Name())))
		}
	}
	return sbxerr.Wrap(sbxerr.StateDir, "snapshots.sweep", errors.Join(errs...))
}

func (s *Store) path(k Key) string { return filepath.Join(s.dir, k.String()) }
