package ctrd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Nobody but containerd writes into the directories of unpacked layers, and it does so
// once. Somebody may still delete files there, to free space for instance. A layer is
// therefore counted when its view is made, and compared before each use.

// maxStamps bounds the directories below the layers of one image that are looked at, so
// that a sandbox's creation spends no more than 0.2 ms on them.
const maxStamps = 64

// stamp tells a directory from itself after a name in it was added or removed.
type stamp struct {
	path       string
	device     uint64
	inode      uint64
	sec, nanos int64 // of the last change (mtime)
}

func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return stamp{}, fmt.Errorf("find layer: lstat %q: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return stamp{}, fmt.Errorf("find layer: %q is no directory", path)
	}
	sec, nanos := st.Mtim.Unix()
	return stamp{path, uint64(st.Dev), st.Ino, sec, nanos}, nil
}

// unchanged reports whether the directories are as they were.
func unchanged(stamps []stamp) bool {
	for _, want := range stamps {
		if got, err := stampOf(want.path); err != nil || got != want {
			return false
		}
	}
	return true
}

// layerCount is the number of names at the top of a layer, and in the directories
// directly below.
type layerCount struct{ top, below int }

// lacks reports whether the layer had more names when it was counted as c.
func (c layerCount) lacks(now layerCount) bool { return now.top < c.top || now.below < c.below }

// loss is the lowest layer that is not whole.
type loss struct {
	below int // the number of layers below it
	why   error
}

// countLayers counts layers, the topmost first, and stamps the directories that it
// read. Without a single name the lowest is lost: no image is so.
func countLayers(dirs []string) (counts []layerCount, stamps []stamp, lost *loss) {
	more, empty := maxStamps, true
	for i, dir := range dirs {
		c, read, err := countLayer(dir, &more)
		if err != nil {
			lost = &loss{len(dirs) - 1 - i, err}
		}
		counts, stamps, empty = append(counts, c), append(stamps, read...), empty && c.top == 0
	}
	if empty && lost == nil {
		lost = &loss{0, fmt.Errorf("find layer: %q is empty", dirs[len(dirs)-1])}
	}
	return counts, stamps, lost
}

// countLayer counts one layer and at most *more directories below, which it takes off.
func countLayer(dir string, more *int) (layerCount, []stamp, error) {
	names, s, err := readStamped(dir)
	if err != nil {
		return layerCount{}, nil, err
	}
	c, stamps := layerCount{top: len(names)}, []stamp{s}
	for _, name := range names {
		if !name.IsDir() || *more == 0 {
			continue
		}
		*more--
		below, s, err := readStamped(filepath.Join(dir, name.Name()))
		if err != nil {
			return layerCount{}, nil, err
		}
		c.below += len(below)
		stamps = append(stamps, s)
	}
	return c, stamps, nil
}

// readStamped lists a directory. The stamp is made first, so a change meanwhile is
// noticed the next time.
func readStamped(dir string) ([]os.DirEntry, stamp, error) {
	s, err := stampOf(dir)
	if err != nil {
		return nil, stamp{}, err
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, stamp{}, fmt.Errorf("find layer: %w", err)
	}
	return names, s, nil
}

// compareCounts finds the lowest layer that lacks names.
func compareCounts(dirs []string, now, recorded []layerCount) *loss {
	var lost *loss
	for i, c := range recorded {
		if c.lacks(now[i]) {
			lost = &loss{len(recorded) - 1 - i, fmt.Errorf("find layer: %q had %d names and %d below, and has %d and %d", dirs[i], c.top, c.below, now[i].top, now[i].below)}
		}
	}
	return lost
}

// formatCounts makes the value of a label: TOP/BELOW of each layer.
func formatCounts(counts []layerCount) string {
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%d/%d", c.top, c.below))
	}
	return strings.Join(parts, ",")
}

// parseCounts reads what formatCounts wrote of n layers.
func parseCounts(value string, n int) ([]layerCount, error) {
	parts := strings.Split(value, ",")
	if len(parts) != n {
		return nil, fmt.Errorf("read the label %s: %q is not of %d layers", countLabel, value, n)
	}
	counts := make([]layerCount, n)
	for i, part := range parts {
		if _, err := fmt.Sscanf(part, "%d/%d", &counts[i].top, &counts[i].below); err != nil {
			return nil, fmt.Errorf("read the label %s: %q: %w", countLabel, value, err)
		}
	}
	return counts, nil
}
