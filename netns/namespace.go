package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// threadNS is the namespace of the calling thread. /proc/self/ns/net would be
// that of the main thread.
const threadNS = "/proc/thread-self/ns/net"

// maxStacked bounds how many mounts on one path Remove takes away. Create
// makes one; more can only come from elsewhere.
const maxStacked = 8

// The ioctls of linux/nsfs.h (kernel 4.11), see ioctl_ns(2).
const (
	nsGetUserNS = 0xb701
	nsGetType   = 0xb703
)

// loIndex is the loopback device: it is the first of every namespace.
const loIndex = 1

var loDevice = &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: loIndex}}

// Create makes a network namespace with the declared sysctls and only lo, up,
// and binds it to a new file at path. On failure nothing is left. A path that
// exists is an error that matches fs.ErrExist and is not touched.
func Create(path string) error {
	return occupy("netns.create", path, func() error {
		return onThread(func() error {
			if err := build(); err != nil {
				return err
			}
			return bind(threadNS, path)
		})
	})
}

// occupy makes a new file at path and has fn bind a namespace to it, last: a file that is
// a namespace is a finished one. On failure nothing is left.
func occupy(op, path string, fn func() error) error {
	if err := checkPath(path); err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Network, op, err)
	}
	if err := errors.Join(f.Close(), fn()); err != nil {
		return sbxerr.Wrap(sbxerr.Network, op, errors.Join(err, Remove(path)))
	}
	return nil
}

func bind(namespace, path string) error {
	if err := unix.Mount(namespace, path, "", unix.MS_BIND, ""); err != nil {
		return &fs.PathError{Op: "bind network namespace to", Path: path, Err: err}
	}
	return nil
}

// build turns the calling thread's namespace into a new one.
func build() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare network namespace: %w", err)
	}
	return configure()
}

// configure sets up the namespace of the calling thread: settings first, lo
// last.
func configure() error {
	if err := writeSysctls(sysctls); err != nil {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	defer h.Close()
	if err := h.LinkSetUp(loDevice); err != nil {
		return fmt.Errorf("set link %q up: %w", "lo", err)
	}
	return addCounted(h)
}

// Remove unbinds the namespace from path and removes the file. The kernel
// destroys the namespace in the background once its last process is gone.
// Absent is success. Only a namespace is ever unmounted and only a regular
// file ever removed; anything else at path is an error and stays.
func Remove(path string) error {
	const op = "netns.remove"
	if err := checkPath(path); err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	for range maxStacked {
		mounted, err := isNamespace(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return sbxerr.Wrap(sbxerr.Network, op, err)
		}
		if !mounted {
			return sbxerr.Wrap(sbxerr.Network, op, unlink(path))
		}
		err = owndir.Unmount(path)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return sbxerr.New(sbxerr.Network, op, "unmount %q: %w", path, err)
		}
	}
	return sbxerr.New(sbxerr.Network, op, "unmount %q: more than %d mounts on it", path, maxStacked)
}

// unlink removes path if it is a regular file.
func unlink(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("remove %q: it is not the file of a namespace but %s", path, info.Mode())
	}
	return owndir.Remove(path)
}

// isNamespace reports whether a namespace is mounted on path. It follows no
// symlink in the last component.
func isNamespace(path string) (bool, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return st.Type == unix.NSFS_MAGIC, nil
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("use path %q: want an absolute, clean path", path)
	}
	return nil
}

// Namespace is an open network namespace. It keeps the namespace alive until
// Close. It is safe for concurrent use.
type Namespace struct{ file *os.File }

// Open opens the namespace bound to path. A file that is not a network
// namespace, or that is the host's own, is an error.
func Open(path string) (*Namespace, error) {
	n, err := openNamespace(path, unix.O_NOFOLLOW)
	return n, sbxerr.Wrap(sbxerr.Network, "netns.open", err)
}

func openNamespace(path string, flags int) (*Namespace, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0) // not for the poller: see kernelfile
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := checkNamespace(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Namespace{file: f}, nil
}

// checkNamespace refuses all but a network namespace that is not the host's: that of the
// first thread, which stays where the process began.
func checkNamespace(f *os.File) error {
	var fsStat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fsStat); err != nil {
		return &fs.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	if fsStat.Type != unix.NSFS_MAGIC {
		return fmt.Errorf("use %q: it is not a namespace", f.Name())
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), nsGetType)
	if err != nil {
		return &fs.PathError{Op: "get type of namespace", Path: f.Name(), Err: err}
	}
	if kind != unix.CLONE_NEWNET {
		return fmt.Errorf("use %q: it is a namespace of another kind", f.Name())
	}
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	live, err := f.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(live, own) {
		return fmt.Errorf("use %q: it is the host's own network namespace", f.Name())
	}
	return nil
}

// Close lets go of the namespace.
func (n *Namespace) Close() error { return n.file.Close() }

// Do runs fn inside n and returns its error. fn must not start goroutines:
// they would run in the host's namespace. Sockets that fn opens stay in n and
// may be used anywhere.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return fn()
	})
}

// enter moves the calling thread into n. Only what onThread runs may.
func (n *Namespace) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return sbxerr.New(sbxerr.Network, "netns.enter", "enter network namespace %q: %w", n.file.Name(), err)
	}
	return nil
}
