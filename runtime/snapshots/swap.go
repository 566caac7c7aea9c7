package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Live is a live sandbox whose files are replaced.
type Live struct {
	Image   string     // file of its disk
	Root    mount.Root // as it was attached
	Base    uint32     // first id of its block
	PID     int
	Process *os.File // pidfd of PID 1
	Spec    *specs.Spec
	Log     *slog.Logger

	// Overlays are the mounts, but for the workspace, of which the disk has the changes. Those that
	// the spec does not mount are not there.
	Overlays []mount.Cow
}

// Steps are what a fleet does while the files of a sandbox are replaced.
type Steps struct {
	End       func() (int, error)           // ends all processes but PID 1, and returns how many
	Still     func(work func() error) error // calls work while no process runs
	Processes func() ([]int, error)         // those there are, with PID 1
	Begin     func() error                  // keeps that Swap is to be called, and calls it
}

// Replace ends the processes of a sandbox, and gives it what Prepare attached. It returns how many
// processes ended.
func (l Live) Replace(do Steps) (ended int, err error) {
	for begun := false; !begun; {
		n, err := do.End()
		ended += n
		if err = errors.Join(err, failpoint.At("rewind/ended")); err == nil {
			err = do.Still(func() error {
				if pids, err := do.Processes(); err != nil || len(pids) > 1 { // a command was just starting
					return err
				}
				begun = true
				return do.Begin()
			})
		}
		if err != nil && !begun {
			return ended, errors.Join(err, l.Drop())
		}
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// next is what the names of the new disk and the new root end with until they are in use.
const next = ".next"

// Prepare attaches a copy of the disk of a snapshot beside that of the sandbox, and a root on it.
// ids shows the ids of the snapshot as those of the sandbox. On an error nothing stays.
func (l Live) Prepare(ctx context.Context, from plan.Origin, ids *mount.UserNS) error {
	err := l.attach(ctx, from, ids)
	if err = errors.Join(err, failpoint.At("rewind/prepared")); err != nil {
		return errors.Join(err, l.Drop())
	}
	return nil
}

func (l Live) attach(ctx context.Context, from plan.Origin, ids *mount.UserNS) error {
	root := l.nextRoot()
	for _, dir := range []string{l.Root.Disk + next, root.Target} {
		if err := sbxerr.Wrap(sbxerr.StateDir, "snapshots.rewind", owndir.Mkdir(dir, 0o711)); err != nil {
			return err
		}
	}
	if err := disk.AttachCopy(ctx, from.File, l.Image+next, l.Root.Disk+next, ids); err != nil {
		return err
	}
	if err := disk.Clear(l.Root.Disk+next, plan.IsCacheChanges); err != nil {
		return err
	}
	if from.WritableRoot {
		if err := mount.ContinueUpper(root.Disk); err != nil {
			return err
		}
	}
	if err := root.Attach(); err != nil {
		return err
	}
	for _, c := range l.Overlays {
		if err := l.attachNext(c); err != nil {
			return err
		}
	}
	var targets []string
	for _, m := range l.Spec.Mounts {
		targets = append(targets, m.Destination)
	}
	if err := mount.CheckPoints(root.Target, mount.Outermost(targets)); err != nil {
		return sbxerr.Wrap(sbxerr.SnapshotMismatch, "snapshots.rewind", err)
	}
	return nil
}

// attachNext attaches an overlay anew, beside the one that is there: its changes go to the new disk.
func (l Live) attachNext(c mount.Cow) error {
	if !slices.ContainsFunc(l.Spec.Mounts, func(m specs.Mount) bool { return m.Source == c.Target }) {
		return nil
	}
	c.Target, c.Changes = c.Target+next, filepath.Join(filepath.Base(l.Root.Disk)+next, filepath.Base(c.Changes))
	if err := owndir.Mkdir(c.Target, 0o700); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "snapshots.rewind", err)
	}
	return c.Attach()
}

func (l Live) nextRoot() mount.Root {
	r := l.Root
	r.Target += next
	if !l.Spec.Root.Readonly {
		r.Disk += next
	} else {
		r.Disk = ""
	}
	return r
}

// Drop removes what Prepare attached. Absent is success.
func (l Live) Drop() error { return Drop(l.Image, l.Root.Disk, l.Root.Target) }

// Drop removes what Prepare attached for a sandbox with the image of its disk in a file, and its disk
// and its root at these points.
func Drop(image, disk0, root string) error {
	mounts := filepath.Join(filepath.Dir(root), plan.MountsDir)
	list, err := os.ReadDir(mounts)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range list {
		if strings.HasSuffix(e.Name(), next) {
			err = errors.Join(err, mount.RemovePointBehind(filepath.Join(mounts, e.Name())))
		}
	}
	return errors.Join(err, mount.RemovePointBehind(root+next), disk.Detach(image+next, disk0+next))
}

// Swap gives the sandbox what Prepare attached, and new tmpfs. Only its PID 1 is left, and that
// stands still. What fails is tried twice. Another daemon can call it again: it does what is missing.
func (l Live) Swap() error {
	err := l.swap()
	if err != nil {
		l.Log.Warn("replace the files of a sandbox: try again", "err", err)
		err = l.swap()
	}
	return err
}

func (l Live) swap() error {
	r := mount.Renewal{Root: l.Root.Target + next, Owner: l.Base, Fresh: l.fresh()}
	if there, err := mount.IsPoint(r.Root); err != nil || !there { // an earlier call came so far
		return errors.Join(err, l.settle())
	}
	step := func(name string) error { // called by a thread in the sandbox, which sees no files of the host
		at := make(chan error, 1)
		go func() { at <- failpoint.At("rewind/" + name) }()
		return <-at
	}
	if err := r.Apply(l.PID, l.Process, step); err != nil {
		return err
	}
	return l.settle()
}

// settle gives what is in use its name. The root goes last: it says whether that was done.
func (l Live) settle() error {
	for _, c := range l.Overlays {
		if err := mount.Replace(c.Target+next, c.Target); err != nil {
			return err
		}
	}
	if err := mount.Replace(l.Root.Disk+next, l.Root.Disk); err != nil {
		return err
	}
	if _, err := os.Lstat(l.Image + next); err == nil {
		if err := owndir.Rename(l.Image+next, filepath.Base(l.Image)); err != nil {
			return sbxerr.Wrap(sbxerr.StateDir, "snapshots.rewind", err)
		}
	}
	if err := errors.Join(failpoint.At("rewind/renamed"), mount.Replace(l.Root.Target+next, l.Root.Target)); err != nil {
		return err
	}
	return l.Drop()
}

// fresh are the mounts that begin anew: each tmpfs, and those of which the disk has files.
func (l Live) fresh() (list []mount.Fresh) {
	own := filepath.Join(l.Root.Disk, plan.DiskWorkspace)
	for _, m := range l.Spec.Mounts {
		switch {
		case m.Type == "tmpfs":
			list = append(list, l.tmpfs(m))
		case m.Source == own:
			list = append(list, mount.Fresh{Target: m.Destination, Point: filepath.Join(now(l.Root.Disk), plan.DiskWorkspace)})
		case slices.ContainsFunc(l.Overlays, func(c mount.Cow) bool { return c.Target == m.Source }):
			list = append(list, mount.Fresh{Target: m.Destination, Point: now(m.Source)})
		}
	}
	return list
}

// now is the new mount that is for a point, whether that is there yet or not.
func now(point string) string {
	if there, err := mount.IsPoint(point + next); err == nil && there {
		return point + next
	}
	return point
}

// tmpfsFlags are the options of a mount that are not those of its file system.
var tmpfsFlags = map[string]int{"nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV, "noexec": unix.MOUNT_ATTR_NOEXEC, "ro": unix.MOUNT_ATTR_RDONLY}

// tmpfs is a new file system like that of m. Its ids are inside of the sandbox.
func (l Live) tmpfs(m specs.Mount) mount.Fresh {
	f := mount.Fresh{Target: m.Destination, Options: map[string]string{"uid": fmt.Sprint(l.Base), "gid": fmt.Sprint(l.Base)}}
	for _, o := range m.Options {
		key, value, set := strings.Cut(o, "=")
		if id, err := strconv.ParseUint(value, 10, 16); set && err == nil && (key == "uid" || key == "gid") {
			value = strconv.FormatUint(uint64(l.Base)+id, 10)
		}
		if set {
			f.Options[key] = value
		}
		f.Attributes |= tmpfsFlags[o]
	}
	return f
}
