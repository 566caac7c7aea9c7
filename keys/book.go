package keys

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Book is what a daemon knows of its keys. It holds none while their file cannot be read.
type Book struct {
	root string

	mu      sync.Mutex
	as      unix.Stat_t // of the file that was read
	list    []Key
	used    map[string]time.Time
	unsaved bool
}

// Open reads the keys of the daemon with this root.
func Open(root string) (*Book, error) {
	b := &Book{root: root, used: Used(root)}
	_, _, err := b.Refresh()
	return b, err
}

// Refresh reads the keys again if their file is another one now, and returns which are new and
// which are gone.
func (b *Book) Refresh() (added, removed []Key, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Lstat(File(b.root), &st); err != nil && !errors.Is(err, unix.ENOENT) {
		added, removed = b.replaceLocked(nil)
		return added, removed, sbxerr.Wrap(sbxerr.StateDir, "keys.read", err)
	}
	if st.Ino == b.as.Ino && st.Mtim == b.as.Mtim && st.Ctim == b.as.Ctim {
		return nil, nil, nil
	}
	list, err := Read(b.root)
	if b.as = st; err != nil {
		b.as = unix.Stat_t{} // it is read again
	}
	added, removed = b.replaceLocked(list)
	return added, removed, err
}

func (b *Book) replaceLocked(list []Key) (added, removed []Key) {
	for _, k := range list {
		if !slices.Contains(b.list, k) {
			added = append(added, k)
		}
	}
	for _, k := range b.list {
		if !slices.Contains(list, k) {
			removed = append(removed, k)
		}
	}
	b.list = list
	return added, removed
}

// Find returns the key with this secret. All keys are compared, whichever it is.
func (b *Book) Find(secret string, now time.Time) (Key, error) {
	hash := hashOf(secret)
	b.mu.Lock()
	defer b.mu.Unlock()
	found := -1
	for i, k := range b.list {
		if k.is(hash) {
			found = i
		}
	}
	if found < 0 {
		return Key{}, sbxerr.New(sbxerr.KeyRefused, "keys.find", "the daemon does not know this key")
	}
	return b.countLocked(b.list[found], now)
}

// Named returns the one key for a certificate with these names.
func (b *Book) Named(names []string, now time.Time) (Key, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []Key
	for _, k := range b.list {
		if k.Certificate && slices.Contains(names, k.Name) {
			found = append(found, k)
		}
	}
	switch shown := sbxerr.Clip(strings.Join(names, ", ")); len(found) {
	case 0:
		return Key{}, sbxerr.New(sbxerr.KeyRefused, "keys.named", "no user is named for a certificate of %q", shown)
	case 1:
		return b.countLocked(found[0], now)
	default:
		return Key{}, sbxerr.New(sbxerr.KeyRefused, "keys.named", "several users are named for a certificate of %q", shown)
	}
}

func (b *Book) countLocked(k Key, now time.Time) (Key, error) {
	if k.Expired(now) {
		return Key{}, sbxerr.New(sbxerr.KeyRefused, "keys.find", "the key %q has expired", k.Name)
	}
	b.used[k.Name], b.unsaved = now, true
	return k, nil
}

// Counts reports whether k is as it was, and has not expired.
func (b *Book) Counts(k Key, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.list, k) && !k.Expired(now)
}

func usedFile(root string) string { return filepath.Join(root, "keys-used.json") }

// Save keeps when each key was used last.
func (b *Book) Save() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.unsaved {
		return nil
	}
	for name := range b.used {
		if !slices.ContainsFunc(b.list, func(k Key) bool { return k.Name == name }) {
			delete(b.used, name)
		}
	}
	data, err := json.Marshal(b.used)
	if err == nil {
		err = owndir.WriteFile(usedFile(b.root), data)
	}
	b.unsaved = err != nil
	return sbxerr.Wrap(sbxerr.StateDir, "keys.used", err)
}

// Used is when each key was used last, as the daemon with this root last saved it.
func Used(root string) map[string]time.Time {
	used := map[string]time.Time{}
	data, err := owndir.ReadFile(usedFile(root), maxBytes)
	if err != nil || json.Unmarshal(data, &used) != nil || used == nil { // nothing depends on it
		return map[string]time.Time{}
	}
	return used
}
