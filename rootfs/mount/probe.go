package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// probeIDs is a mapping that no daemon hands out: the nobody of this host.
var probeIDs = []IDMap{{Disk: 0, Host: 65534, Size: 1}}

// Probe makes, in a new directory below dir, what a sandbox needs of the file
// system there, and removes it again. A nil answer means that it works; an
// error carries the code that a run would fail with.
func Probe(dir string) (err error) {
	const op = "mount.probe"
	base, err := os.MkdirTemp(dir, ".probe-")
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	points := map[string]string{}
	for _, name := range []string{"layer", "private", "scratch", "root"} {
		points[name] = filepath.Join(base, name)
		if err := os.Mkdir(points[name], 0o755); err != nil {
			return sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, owndir.RemoveTree(base)))
		}
	}
	defer func() {
		err = errors.Join(err, Detach(points["root"]), RemoveScratch(points["scratch"]), owndir.RemoveTree(base))
	}()
	ns, err := NewUserNS(probeIDs, probeIDs)
	if err != nil {
		return err
	}
	root := Root{Layers: []string{points["layer"]}, Private: points["private"], Scratch: points["scratch"], Target: points["root"], IDs: ns}
	return errors.Join(root.Attach(), ns.Close())
}

// FSName names the file system that holds path, by its magic number
// (statfs(2)), or gives the number where the name is not known.
func FSName(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", fmt.Errorf("statfs %q: %w", path, err)
	}
	if name, ok := fsNames[int64(st.Type)]; ok {
		return name, nil
	}
	return fmt.Sprintf("%#x", st.Type), nil
}

var fsNames = map[int64]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.FUSE_SUPER_MAGIC:      "fuse",
}
