// Package backup writes what of a daemon's root must outlive the host to one tar, and reads that
// back into a root.
//
// No daemon runs meanwhile: the lock of the root is held. The first entry is the manifest, with the
// names of all items. Each item is a file or a tree of files, with owners, modes, times and
// extended attributes as on disk. The last entry is the SHA-256 of every byte before it. A restore
// reads all of that into a directory beside, and only then moves each item to its place.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	version      = 1
	manifestName = "caisson-backup.json"
	sumName      = "sha256"
	maxManifest  = 64 << 20 // some 500,000 items

	// prefix marks the PAX records of this format.
	prefix = "CAISSON."
	// sparseSize is the size of a file with holes. Its content is a line "OFFSET LENGTH" for each
	// extent, an empty line, and the extents.
	sparseSize = prefix + "size"
)

// Manifest is the first entry of a backup.
type Manifest struct {
	Version   int       `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	Root      string    `json:"root"`
	Items     []string  `json:"items"` // relative to the root, as volumes/1000+data
}

// Options are those of a backup and of a restore.
type Options struct {
	NoImages     bool // leave out images
	SkipExisting bool // restore only items that do not exist yet
}

// Count is what of one part was written or restored.
type Count struct {
	Part  string `json:"part"`
	Items int    `json:"items"`
	Bytes int64  `json:"bytes"` // of content, without holes
}

// Result counts what a backup or a restore copied.
type Result struct {
	CreatedAt time.Time `json:"created_at"`
	Counts    []Count   `json:"parts"`
	// Left names what was not copied: a backup left it out, or a restore found that it exists.
	Left []string `json:"left"`
}

func (r *Result) add(part string, items int, bytes int64) {
	for i := range r.Counts {
		if r.Counts[i].Part == part {
			r.Counts[i].Items += items
			r.Counts[i].Bytes += bytes
		}
	}
}

// A part is one kind of data in a root, such as volumes.
type part struct {
	name string
	item func(name string) bool // nil: the part is one item
	skip []string               // files of an item that stay behind
	// layers: it has layers of overlayfs, whose removed files are devices 0:0 and whose replaced
	// directories have an attribute (Documentation/filesystems/overlayfs.rst, "whiteouts").
	layers bool
}

var parts = []part{
	{name: "volumes", item: isKey},
	{name: "snapshots", item: isKey},
	{name: "changesets", item: isID},
	{name: "secrets.json"},
	{name: "keys.json"},
	// The private key of the log stays on its host: key.pub verifies.
	{name: auditPart, skip: []string{"key", "reserve"}},
	// No containerd runs without its daemon, so its databases are at rest.
	{name: imagesPart, layers: true},
}

const (
	auditPart  = "audit"
	imagesPart = "containerd"
)

// keyForm is UID+NAME, as package runtime/owned writes it.
var keyForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(0|[1-9][0-9]{0,9})\+[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)
})

// idForm is that of a sandbox's ID.
var idForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{26}$`) })

func isID(name string) bool { return idForm().MatchString(name) }

func isKey(name string) bool {
	match := keyForm().FindStringSubmatch(name)
	if match == nil {
		return false
	}
	_, err := strconv.ParseUint(match[1], 10, 32)
	return err == nil
}

func counts() (list []Count) {
	for _, p := range parts {
		list = append(list, Count{Part: p.name})
	}
	return list
}

// partOf is the part of an item; false is one that no backup has.
func partOf(item string) (part, bool) {
	name, rest, below := strings.Cut(item, "/")
	at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if at < 0 || below != (parts[at].item != nil) || below && !parts[at].item(rest) {
		return part{}, false
	}
	return parts[at], true
}

// itemOf is the item that an entry belongs to.
func itemOf(entry string) string {
	name, rest, below := strings.Cut(entry, "/")
	at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if !below || at < 0 || parts[at].item == nil {
		return name
	}
	first, _, _ := strings.Cut(rest, "/")
	return name + "/" + first
}

// items are those that the root has.
func items(root string, o Options) (list []string, err error) {
	for _, p := range parts {
		if o.NoImages && p.name == imagesPart {
			continue
		}
		if p.item == nil {
			_, err := os.Lstat(filepath.Join(root, p.name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, sbxerr.Wrap(sbxerr.StateDir, opCreate, err)
			}
			list = append(list, p.name)
			continue
		}
		entries, err := os.ReadDir(filepath.Join(root, p.name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, sbxerr.Wrap(sbxerr.StateDir, opCreate, err)
		}
		for _, e := range entries {
			if p.item(e.Name()) { // else it is half made or half removed
				list = append(list, p.name+"/"+e.Name())
			}
		}
	}
	return list, nil
}

// lock holds the root, so that no daemon runs.
func lock(root, op string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		f.Close() // it was only locked
		return nil, sbxerr.WithRemedy(sbxerr.Locked, op, fmt.Errorf("a daemon holds %q", root), "stop the daemon first, and start it afterwards")
	}
	if err != nil {
		f.Close()
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return f, nil
}

func encode(m Manifest) ([]byte, error) {
	data, err := json.Marshal(m)
	return data, sbxerr.Wrap(sbxerr.Internal, opCreate, err)
}
