package mount

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// View shows an image read-only, with its ids as they are, to the daemon alone. layers are
// its directories, the topmost first; none show an empty directory. dir is for the time of the call; one call uses it at
// a time. The mount has no name when View returns, and ends with the last open file.
func View(layers []string, dir string) (_ *os.Root, err error) {
	if err := RemoveView(dir); err != nil { // of a daemon that was killed
		return nil, err
	}
	r := Root{Layers: layers, Private: filepath.Join(dir, "private"), Scratch: filepath.Join(dir, "layers"), Target: filepath.Join(dir, "root")}
	for _, d := range []string{dir, r.Private, r.Scratch, r.Target} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, "mount.view", err)
		}
	}
	defer func() { err = errors.Join(err, RemoveView(dir)) }()
	if len(layers) == 0 { // an empty directory, which has no name either when View returns
		root, err := os.OpenRoot(r.Target)
		return root, sbxerr.Wrap(sbxerr.StateDir, "mount.view", err)
	}
	if err := r.Attach(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(r.Target)
	return root, sbxerr.Wrap(sbxerr.Mount, "mount.view", err)
}

// RemoveView removes all that View makes in dir, and dir. Absent is success.
func RemoveView(dir string) error {
	return errors.Join(
		RemovePoint(filepath.Join(dir, "root")),
		RemoveScratch(filepath.Join(dir, "layers")),
		RemovePoint(filepath.Join(dir, "layers")),
		RemovePrivate(filepath.Join(dir, "private")),
		removeEmpty(dir))
}

func removeEmpty(dir string) error {
	return sbxerr.Wrap(sbxerr.StateDir, "mount.view", owndir.Remove(dir))
}
