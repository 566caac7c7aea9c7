package workspaces

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/failpoint"
)

// Changeset is what an ended sandbox changed in its copy-on-write workspace. It has the ID of
// the sandbox, and is a directory of the store with the sandbox's disk.
type Changeset struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"` // of the sandbox
	Owner   uint32            `json:"owner"`
	Dir     string            `json:"dir"` // of the host
	Base    mount.Base        `json:"base"`
	Session string            `json:"session"`
	Labels  map[string]string `json:"labels"`
	KeptAt  time.Time         `json:"kept_at"`
	Bytes   int64             `json:"-"` // that it takes

	Upper string `json:"upper"` // of the layer, on the disk
	Image string `json:"image"` // where the disk was until it was moved, and
	Point string `json:"point"` // where it was mounted
}

const (
	diskName    = "disk"
	metaName    = "changeset.json"
	appliedName = "applied.json"
	halfDone    = "." // what a half kept one begins with

	maxMeta = 1 << 20
)

// store keeps changesets in a directory of the daemon's own.
type store struct{ dir string }

func (s store) path(id, name string) string { return filepath.Join(s.dir, id, name) }

// list returns all changesets, the newest first.
func (s store) list() (list []Changeset, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "workspaces.list", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), halfDone) {
			continue
		}
		if c, err := s.read(e.Name()); err == nil { // else it goes meanwhile
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Changeset) int { return cmp.Or(b.KeptAt.Compare(a.KeptAt), strings.Compare(a.ID, b.ID)) })
	return list, nil
}

func (s store) read(id string) (c Changeset, err error) {
	data, err := owndir.ReadFile(s.path(id, metaName), maxMeta)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	var st unix.Stat_t
	if err == nil && unix.Lstat(s.path(id, diskName), &st) == nil {
		c.Bytes = st.Blocks * 512
	}
	return c, err
}

// keep makes a changeset of the disk of a sandbox that has ended. A daemon that is killed
// meanwhile leaves it to sweep.
func (s store) keep(e Ending) error {
	half := halfDone + e.ID
	if err := owndir.RemoveTree(filepath.Join(s.dir, half)); err != nil {
		return err
	}
	if err := owndir.Mkdir(filepath.Join(s.dir, half), 0o700); err != nil {
		return err
	}
	applied, err := owndir.ReadFile(e.Applied, 64<<20)
	if err == nil {
		err = owndir.WriteFile(s.path(half, appliedName), applied)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := json.Marshal(e.Changeset)
	if err == nil {
		err = owndir.WriteFile(s.path(half, metaName), data)
	}
	if err == nil {
		err = failpoint.At("changeset/made")
	}
	if err == nil {
		err = disk.Release(e.Image, e.Point, s.path(half, diskName))
	}
	if err = errors.Join(err, failpoint.At("changeset/moved")); err == nil {
		err = owndir.Rename(filepath.Join(s.dir, half), e.ID)
	}
	return err
}

// sweep finishes what an earlier daemon was killed in, or removes it.
func (s store) sweep() error {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		if id, half := strings.CutPrefix(e.Name(), halfDone); half {
			errs = append(errs, s.settle(id))
		}
	}
	return errors.Join(errs...)
}

// settle finishes a changeset that is half made, or removes it. It may be absent.
func (s store) settle(id string) error {
	half := halfDone + id
	at := filepath.Join(s.dir, half)
	if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := s.read(half)
	if err != nil {
		return owndir.RemoveTree(at)
	}
	if _, err := os.Lstat(s.path(half, diskName)); err == nil {
		return owndir.Rename(at, id)
	}
	if mounted, err := mount.IsPoint(c.Point); mounted || err != nil { // it is kept once more
		return errors.Join(err, owndir.RemoveTree(at))
	}
	if err := owndir.Move(c.Image, s.path(half, diskName)); err != nil {
		return errors.Join(err, owndir.RemoveTree(at))
	}
	return owndir.Rename(at, id)
}

// remove removes a changeset in one step.
func (s store) remove(id string) error {
	if err := owndir.Rename(filepath.Join(s.dir, id), halfDone+id); err != nil {
		return err
	}
	return owndir.RemoveTree(filepath.Join(s.dir, halfDone+id))
}

// upper opens the upper layer of a changeset.
func (s store) upper(c Changeset) (*os.File, error) {
	root, err := disk.OpenSaved(s.path(c.ID, diskName))
	if err != nil {
		return nil, err
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(root.Fd()), c.Upper, &how)
	if err = errors.Join(err, root.Close()); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Disk, "workspaces.open", fmt.Errorf("open the changes of %s: %w", c.ID, err))
	}
	return os.NewFile(uintptr(fd), c.Upper), nil
}

// isEmpty reports whether nothing was ever changed.
func isEmpty(ctx context.Context, upper string) (bool, error) {
	d, err := os.Open(upper)
	if err != nil {
		return false, err
	}
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, d.Close()
	}
	return false, errors.Join(err, d.Close(), ctx.Err())
}
