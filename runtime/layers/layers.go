// Package layers finds whether the layers of an image are still those of which a sandbox was made.
package layers

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Mark tells a layer's directory from any other, and from itself without what it
// held. Nobody changes a layer.
type Mark struct {
	Path    string `json:"path"`
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Entries int    `json:"entries"` // at the top
}

// ErrLost is in the cause with which a sandbox is ended whose files are gone.
var ErrLost = sbxerr.New(sbxerr.ImageDamaged, "runtime.adopt", "the files of the sandbox's image were removed or changed")

// Marks returns the marks of the layers in dirs.
func Marks(dirs []string) ([]Mark, error) {
	var marks []Mark
	for _, dir := range dirs {
		m, err := mark(dir)
		if err != nil {
			return nil, sbxerr.New(sbxerr.ImageDamaged, "runtime.layers", "look at layer %q: %w", dir, err)
		}
		marks = append(marks, m)
	}
	return marks, nil
}

func mark(dir string) (Mark, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Mark{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Mark{}, err
	}
	names, err := f.Readdirnames(-1)
	return Mark{Path: dir, Device: uint64(st.Dev), Inode: st.Ino, Entries: len(names)}, err
}

// Check finds whether the layers below a live sandbox are those that it was made
// of. A mount of removed directories lives on, empty.
func Check(marks []Mark) error {
	for _, want := range marks {
		if got, err := mark(want.Path); err != nil || got != want {
			return fmt.Errorf("%w: layer %q is %+v, %v", ErrLost, want.Path, got, err)
		}
	}
	return nil
}

// Paths are the directories of marks.
func Paths(marks []Mark) (dirs []string) {
	for _, m := range marks {
		dirs = append(dirs, m.Path)
	}
	return dirs
}
