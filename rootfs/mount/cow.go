package mount

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Cow says where a copy-on-write workspace is put together: an overlay whose lower layer is
// the directory of the host, read-only.
type Cow struct {
	Dir     string // directory of the sandbox; Lower and Changes are below it
	Lower   string // new directory, at which the host's is attached as long as the overlay is
	Changes string // new directory of the sandbox's disk
	Target  string // existing directory
	Base    uint32 // first host id of the sandbox's block
}

// cowOptions are diskOptions, with inode numbers that stay when a file is changed: git takes
// another number for another file. The host's directory is a lower layer as it is: nobody but
// root of the host can put a redirect there (overlayfs.rst, "Inode properties").
const cowOptions = "redirect_dir=on,metacopy=off,index=off,xino=auto,volatile"

// AttachCow mounts the workspace at c.Target, so that it can be written to and the host's
// directory never changes. ids maps its owner as for Attach. On an error the layers may be
// attached: RemovePoint takes them off. The Base is that of the host's directory before.
func (w *Workspace) AttachCow(c Cow, ids *UserNS) (Base, error) {
	base, err := BaseOf(w.dir)
	if err != nil {
		return base, sbxerr.Wrap(sbxerr.Workspace, "mount.cow", err)
	}
	return base, w.attachCow(c, ids)
}

func (w *Workspace) attachCow(c Cow, ids *UserNS) error {
	const op = "mount.cow"
	lower := filepath.Join(c.Dir, c.Lower)
	if err := owndir.Mkdir(lower, 0o700); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	if err := w.Attach(lower, true, ids); err != nil {
		if errors.Is(err, sbxerr.IDMap) {
			err = sbxerr.WithRemedy(sbxerr.IDMap, op, err, "copy the files to a disk of the sandbox instead: --disk SIZE without --workspace, then caisson cp "+sbxerr.Clip(w.dir.Name())+" SANDBOX:/workspace")
		}
		return err
	}
	if err := c.Attach(); err != nil {
		return sbxerr.Wrap(sbxerr.Of(err), op, fmt.Errorf("host directory %q, copy-on-write: %w", w.dir.Name(), err))
	}
	return nil
}

// Attach mounts the overlay. Its lower layer is attached.
func (c Cow) Attach() error {
	const op = "mount.cow"
	lower := filepath.Join(c.Dir, c.Lower)
	if err := owndir.Mkdir(filepath.Join(c.Dir, c.Changes), 0o700); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	err := c.prepare(lower)
	if err == nil {
		err = c.attach(lower)
	}
	return sbxerr.Wrap(sbxerr.Overlay, op, err)
}

// prepare makes the upper layer. Its root decides who owns the root of the workspace.
func (c Cow) prepare(lower string) error {
	var st unix.Stat_t
	if err := unix.Lstat(lower, &st); err != nil {
		return err
	}
	changes, err := owndir.OpenDir(filepath.Join(c.Dir, c.Changes))
	if err != nil {
		return err
	}
	dir := int(changes.Fd())
	err = unix.Mkdirat(dir, workName, 0o700)
	if err == nil {
		err = makeOwned(dir, upperName, st.Mode&0o1777, c.inside(st.Uid), c.inside(st.Gid))
	}
	return errors.Join(err, changes.Close())
}

// overflowID is what the kernel shows for an id that is not mapped (user_namespaces(7)).
const overflowID = 65534

// inside is an id of the lower layer as one of the sandbox: nobody's where it is not mapped.
func (c Cow) inside(id uint32) int {
	if id == overflowID {
		return int(c.Base + overflowID)
	}
	return int(id)
}

// attach mounts the overlay. The kernel makes it read-only, without an error, where it cannot
// write to the disk. An overlay takes no noexec from its layers.
func (c Cow) attach(lower string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(lower, &st); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if st.Flags&unix.ST_NOEXEC != 0 {
		flags |= unix.MS_NOEXEC
	}
	data := "lowerdir=" + c.Lower + ",upperdir=" + UpperDir(c.Changes) + ",workdir=" + filepath.Join(c.Changes, workName) + "," + cowOptions
	if err := mountOverlay(c.Dir, c.Target, flags, data); err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	err := unix.Statfs(c.Target, &st)
	if err == nil && st.Flags&unix.ST_RDONLY != 0 {
		err = errors.New("the kernel made the overlay read-only")
	}
	if err != nil {
		return errors.Join(err, Detach(c.Target))
	}
	return nil
}
