package ctrd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// The databases of a private containerd, and what each describes. A database without
// the other, or without its files, is of no use: all are set aside together.
var databases = []struct{ file, files string }{
	{"io.containerd.metadata.v1.bolt/meta.db", "io.containerd.content.v1.content/blobs"},
	{"io.containerd.snapshotter.v1.overlayfs/metadata.db", "io.containerd.snapshotter.v1.overlayfs/snapshots"},
}

// boltMagic is in each of the two first pages of a database, after the page's header
// (go.etcd.io/bbolt, type meta).
var boltMagic = []byte{0xed, 0xda, 0x0c, 0xed}

const boltPages = 64 << 10 // more than two of the largest pages that Linux has

// setAsideMark is in the names of directories that were set aside.
const setAsideMark = ".broken-"

// SetAside lists the directories of containerd that were set aside.
func SetAside(p Paths) []string {
	found, _ := filepath.Glob(p.serverRoot() + setAsideMark + "*") // the pattern is well-formed
	return found
}

// setAsideBroken sets containerd's directory aside where a database is gone or garbled.
func setAsideBroken(p Paths, log *slog.Logger) error {
	for _, d := range databases {
		if err := checkDatabase(p.serverRoot(), d.file, d.files); err != nil {
			return setAside(p, log, err)
		}
	}
	return nil
}

// setAside renames containerd's directory. It is kept: somebody may find out what broke
// it. Mounts of what is in it stay as they are.
func setAside(p Paths, log *slog.Logger, why error) error {
	to := p.serverRoot() + setAsideMark + time.Now().UTC().Format("20060102T150405.000000")
	if err := owndir.Rename(p.serverRoot(), filepath.Base(to)); err != nil {
		return sbxerr.New(sbxerr.StateDir, "ctrd.set_aside", "set containerd's broken directory aside (%w): %w", why, err)
	}
	log.Error("containerd's directory is broken and set aside: its images are to be imported again", "reason", why, "kept", to)
	return nil
}

func checkDatabase(root, file, files string) error {
	f, err := os.Open(filepath.Join(root, file))
	if errors.Is(err, fs.ErrNotExist) {
		if entries, _ := os.ReadDir(filepath.Join(root, files)); len(entries) > 0 {
			return fmt.Errorf("%s is gone, and %s is not empty", file, files)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s is no file", file), err)
	}
	head, err := io.ReadAll(io.LimitReader(f, 2*boltPages))
	if err == nil && !bytes.Contains(head, boltMagic) {
		err = fmt.Errorf("%s is no database", file)
	}
	return err
}

// blamesDatabase reports whether containerd ended at its start because of a database, such as
// one of which a kill left the first pages alone.
func blamesDatabase(err error) bool {
	for _, word := range []string{"bbolt", "meta.db", "metadata.db", "invalid database", "file size too small"} {
		if strings.Contains(err.Error(), word) {
			return true
		}
	}
	return false
}
