package mount

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Homes are directories of an image that the user of one sandbox may write to. Each is an
// overlay over the directory in the root file system. What is written goes to one tmpfs
// that they share, and is charged to the sandbox's cgroup.
type Homes struct {
	Root     string // the root file system, attached by [Root.Attach]
	Dir      string // existing empty directory of the daemon's
	UID, GID uint32 // the user, in ids of the host
	Bytes    int64  // size of the tmpfs
	Inodes   int64
	List     []Home
}

// Home is one directory.
type Home struct {
	Path   string   // below the root, without a leading slash; a directory of the private layer
	Mode   uint32   // permission bits
	Points []string // paths below it that become directories, on which something is mounted
	Files  []string // those of Points that become files
}

// homeOptions differ from those of the root. The upper layer is the sandbox's own, so a
// directory of the image can be renamed: nobody in a user namespace can forge a redirect,
// and the lower layer is an overlay, which hides those of its layers (overlayfs.rst,
// "redirect_dir").
const homeOptions = "redirect_dir=on,metacopy=off,index=off,xino=off"

// HomePoint is where Attach puts the home with that index.
func HomePoint(dir string, i int) string { return filepath.Join(dir, strconv.Itoa(i)) }

// homeUpper is where it puts the tmpfs.
func homeUpper(dir string) string { return filepath.Join(dir, upperName) }

// Attach mounts the homes at their HomePoint. Detach by [RemoveScratch]. On an error some
// may be mounted.
func (h Homes) Attach() error {
	upper := homeUpper(h.Dir)
	err := os.Mkdir(upper, 0o700)
	if err == nil {
		err = h.attachUpper(upper)
	}
	for i := range h.List {
		if err == nil {
			err = h.attach(i)
		}
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.home", err)
}

func (h Homes) attachUpper(dir string) error {
	t, err := newTmpfs(map[string]string{"size": strconv.FormatInt(h.Bytes, 10), "nr_inodes": strconv.FormatInt(h.Inodes, 10), "mode": "0711"},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	for i, home := range h.List {
		if err == nil {
			err = h.fill(t.fd, i, home)
		}
	}
	if err == nil {
		err = t.attach(dir)
	}
	return errors.Join(err, t.Close())
}

// upperOf and workOf are the directories of the home with that index on the tmpfs.
func upperOf(i int) string { return upperName + strconv.Itoa(i) }
func workOf(i int) string  { return workName + strconv.Itoa(i) }

// fill makes the layers of a home, with the directories for mounts. The upper layer decides
// who owns a directory of both.
func (h Homes) fill(tmpfs, i int, home Home) error {
	if err := unix.Mkdirat(tmpfs, workOf(i), 0o700); err != nil {
		return err
	}
	if err := makeOwned(tmpfs, upperOf(i), home.Mode, int(h.UID), int(h.GID)); err != nil {
		return err
	}
	for _, point := range home.Points {
		at := ""
		for _, name := range strings.Split(point, "/") {
			at = path.Join(at, name)
			made := path.Join(upperOf(i), at)
			if at == point && slices.Contains(home.Files, point) {
				if err := makeFile(tmpfs, made, int(h.UID), int(h.GID)); err != nil {
					return fmt.Errorf("file %q: %w", at, err)
				}
				continue
			}
			if err := h.makePoint(tmpfs, made, path.Join(home.Path, at)); err != nil {
				return fmt.Errorf("directory %q: %w", at, err)
			}
		}
	}
	return nil
}

// makePoint makes a directory like the image's, or of the user's where it has none. It
// covers a link or a file of the image.
func (h Homes) makePoint(tmpfs int, name, inImage string) error {
	uid, gid, mode := int(h.UID), int(h.GID), uint32(0o755)
	st, err := h.statDir(inImage)
	switch {
	case err == nil:
		uid, gid, mode = int(st.Uid), int(st.Gid), st.Mode&0o777
	case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP):
		return err
	}
	if err := makeOwned(tmpfs, name, mode, uid, gid); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

func makeFile(dir int, name string, uid, gid int) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fchown(fd, uid, gid), unix.Close(fd))
}

// statDir describes a directory of the root, without following a link.
func (h Homes) statDir(name string) (st unix.Stat_t, err error) {
	root, err := unix.Open(h.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, unix.Close(root)) }()
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(root, name, &how)
	if err != nil {
		return st, err
	}
	return st, errors.Join(unix.Fstat(fd, &st), unix.Close(fd))
}

func makeOwned(dir int, name string, mode uint32, uid, gid int) error {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return err
	}
	if err := unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.Fchmodat(dir, name, mode, 0) // whatever the umask is
}

// attach mounts one overlay. Its names are relative: the sandbox can read them.
func (h Homes) attach(i int) error {
	target := HomePoint(h.Dir, i)
	if err := os.Mkdir(target, 0o700); err != nil {
		return err
	}
	root, err := filepath.Rel(h.Dir, h.Root)
	if err != nil {
		return err
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", filepath.Join(root, h.List[i].Path),
		filepath.Join(upperName, upperOf(i)), filepath.Join(upperName, workOf(i)), homeOptions)
	if err := mountOverlay(h.Dir, target, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount %q: %w", h.List[i].Path, err)
	}
	return nil
}

// ResizeHomes gives the tmpfs of the homes attached in dir its size in bytes. The kernel
// refuses a size below what it holds.
func ResizeHomes(dir string, bytes int64) error {
	err := resize(homeUpper(dir), bytes)
	return sbxerr.Wrap(sbxerr.Mount, "mount.resize", err)
}

// UsedHomes returns how full their tmpfs is.
func UsedHomes(dir string) (TmpfsUse, error) {
	use, err := tmpfsUse(homeUpper(dir))
	return use, sbxerr.Wrap(sbxerr.Mount, "mount.tmpfs", err)
}
