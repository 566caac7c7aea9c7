package runtime

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// layerMark tells a layer's directory from any other, and from itself without what it
// held. Nobody changes a layer.
type layerMark struct {
	Path    string `json:"path"`
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Entries int    `json:"entries"` // at the top
}

// errLayersLost is in the cause with which a sandbox is ended whose files are gone.
var errLayersLost = sbxerr.New(sbxerr.ImageDamaged, "runtime.adopt", "the files of the sandbox's image were removed or changed")

func markLayers(dirs []string) ([]layerMark, error) {
	var marks []layerMark
	for _, dir := range dirs {
		m, err := markLayer(dir)
		if err != nil {
			return nil, sbxerr.New(sbxerr.ImageDamaged, "runtime.layers", "look at layer %q: %w", dir, err)
		}
		marks = append(marks, m)
	}
	return marks, nil
}

func markLayer(dir string) (layerMark, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return layerMark{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return layerMark{}, err
	}
	names, err := f.Readdirnames(-1)
	return layerMark{Path: dir, Device: uint64(st.Dev), Inode: st.Ino, Entries: len(names)}, err
}

// checkLayers finds whether the layers below a live sandbox are those that it was made
// of. A mount of removed directories lives on, empty.
func checkLayers(marks []layerMark) error {
	for _, want := range marks {
		if got, err := markLayer(want.Path); err != nil || got != want {
			return fmt.Errorf("%w: layer %q is %+v, %v", errLayersLost, want.Path, got, err)
		}
	}
	return nil
}
