package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Root is the root file system of one sandbox.
type Root struct {
	Layers  []string // directories of the image, the topmost first
	Private string   // the sandbox's own top layer; see WritePrivate
	Scratch string   // empty directory of the daemon's, for the time of the call
	Target  string   // existing directory that becomes the root
	IDs     *UserNS  // maps the layers' ids into the sandbox's block
	Upper   string   // mount of AttachUpper that takes what is written
	Disk    string   // instead: a disk with an upper layer of PrepareUpper; both empty: nothing can be written
}

// maxLayers bounds the stack; the kernel's own bound for overlayfs is 500.
const maxLayers = 128

// overlayOptions are fixed: layers are hostile content, so nothing in them may
// redirect a lookup or refer to another layer's data (overlayfs.rst).
const overlayOptions = "redirect_dir=nofollow,metacopy=off,index=off,xino=off"

// diskOptions are those of an upper layer on a disk. A directory of the image can be renamed:
// the upper layer is the sandbox's own, where nobody in a user namespace can forge a redirect,
// and the lower layer is an overlay, which follows none of its layers. What is written need
// not outlive the mount, so nothing waits until it is on the disk (overlayfs.rst, "volatile").
const diskOptions = homeOptions + ",volatile"

// imageName is where the overlay of the image's layers is in the scratch directory, for the
// time of the call.
const imageName = "image"

// Attach mounts r at its target: an overlay. Without an upper layer nothing can be
// written to it by anybody. Its lower layers are private
// id-mapped clones of the image's directories. It needs Linux 5.19 (id-mapped
// layers) and a file system below the layers that can map ids.
//
// On an error nothing stays mounted.
func (r Root) Attach() (err error) {
	const op = "mount.root"
	if len(r.Layers) == 0 || len(r.Layers) > maxLayers {
		return sbxerr.New(sbxerr.ImageContent, op, "the image has %d layers, 1 to %d are possible", len(r.Layers), maxLayers)
	}
	defer func() { err = errors.Join(err, r.dropScratch()) }()
	if err := r.attachLayers(); err != nil {
		return sbxerr.Wrap(mountCode(err), op, err)
	}
	if err := r.attachOverlay(); err != nil {
		return sbxerr.Wrap(sbxerr.Overlay, op, err)
	}
	return nil
}

func mountCode(err error) sbxerr.Code {
	if errors.Is(err, sbxerr.IDMap) {
		return sbxerr.IDMap
	}
	return sbxerr.Mount
}

func (r Root) attachLayers() error {
	for i, layer := range r.Layers {
		point := filepath.Join(r.Scratch, strconv.Itoa(i))
		if err := os.Mkdir(point, 0o700); err != nil {
			return err
		}
		dir, err := os.OpenFile(layer, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return fmt.Errorf("open layer %d: %w", i, err)
		}
		err = errors.Join(bind(dir, point, true, r.IDs), dir.Close())
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

// attachOverlay mounts with the scratch directory as the working directory: the layers'
// names are then relative, so that the mount table, which the sandbox can read, tells
// nothing of the host's directories, and short, because mount(2) takes one page of options.
func (r Root) attachOverlay() error {
	private, err := filepath.Rel(r.Scratch, r.Private)
	if err != nil {
		return err
	}
	names := []string{private}
	for i := range r.Layers {
		names = append(names, strconv.Itoa(i))
	}
	data := "lowerdir=" + strings.Join(names, ":") + "," + overlayOptions
	var flags uintptr = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if r.Upper != "" {
		upper, err := filepath.Rel(r.Scratch, r.Upper)
		if err != nil {
			return err
		}
		data += ",upperdir=" + UpperDir(upper) + ",workdir=" + filepath.Join(upper, workName)
		flags &^= unix.MS_RDONLY
	}
	target := r.Target
	if r.Disk != "" {
		target = filepath.Join(r.Scratch, imageName)
		if err := os.Mkdir(target, 0o700); err != nil {
			return err
		}
	}
	if err := mountOverlay(r.Scratch, target, flags, data); err != nil {
		return fmt.Errorf("mount an overlay of %d layers: %w", len(r.Layers), err)
	}
	if r.Disk != "" {
		return r.attachOverDisk()
	}
	return nil
}

// attachOverDisk mounts the image, which is attached in the scratch directory, below the upper
// layer of the disk. The kernel makes such a mount read-only, without an error, where it
// cannot write to the disk.
func (r Root) attachOverDisk() error {
	disk, err := filepath.Rel(r.Scratch, r.Disk)
	if err != nil {
		return err
	}
	data := "lowerdir=" + imageName + ",upperdir=" + UpperDir(disk) + ",workdir=" + filepath.Join(disk, workName) + "," + diskOptions
	if err := mountOverlay(r.Scratch, r.Target, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount the writable root: %w", err)
	}
	var st unix.Statfs_t
	if err = unix.Statfs(r.Target, &st); err == nil && st.Flags&unix.ST_RDONLY != 0 {
		err = errors.New("the kernel made the writable root read-only")
	}
	if err != nil {
		return errors.Join(err, Detach(r.Target))
	}
	return nil
}

// mountOverlay mounts a private overlay at target. The names in data are relative to dir.
func mountOverlay(dir, target string, flags uintptr, data string) error {
	return onThrowawayThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare the working directory: %w", err)
		}
		if err := unix.Chdir(dir); err != nil {
			return err
		}
		if err := unix.Mount("overlay", target, "overlay", flags, data); err != nil {
			return err
		}
		err := unix.Mount("", target, "", unix.MS_PRIVATE, "")
		if err != nil {
			return errors.Join(fmt.Errorf("make it private: %w", err), Detach(target))
		}
		return nil
	})
}

// onThrowawayThread runs fn on a thread that Go ends afterwards, because what
// fn changes about its thread cannot be changed back.
//
// Go never ends the main thread. Left in a sandbox's mount namespace it would keep
// that alive and show it as the daemon's own in /proc, so a goroutine that lands
// there only holds it while another one does the work.
func onThrowawayThread(fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		err := errors.New("the function ended its goroutine")
		defer func() { errc <- err }()
		goruntime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err = onThrowawayThread(fn)
			goruntime.UnlockOSThread()
			return
		}
		err = fn() // never unlocked
	}()
	return <-errc
}

// dropScratch takes the temporary layer mounts away. The overlay holds clones
// of its own.
func (r Root) dropScratch() error { return RemoveScratch(r.Scratch) }

// RemoveScratch empties the scratch directory that Attach used: its mount
// points are detached and removed one by one, never their content.
func RemoveScratch(scratch string) error {
	entries, err := os.ReadDir(scratch)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		point := filepath.Join(scratch, e.Name())
		if err := Detach(point); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, owndir.Remove(point))
	}
	return errors.Join(errs...)
}
