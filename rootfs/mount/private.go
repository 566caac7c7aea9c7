package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Points are the directories that every sandbox has as mount points, whatever
// its image holds. They live in the sandbox's private top layer, so no image
// can put a symbolic link in their place and the OCI runtime never has to
// create anything inside the root (CVE-2021-30465, CVE-2024-45310).
var Points = []string{"dev", "etc", "home", "proc", "run", "sys", "tmp", "var", "var/tmp", "workspace"}

// Files are the private files of a sandbox, by path below its root.
type Files map[string]string

// HostFiles are /etc/hostname, /etc/hosts and /etc/resolv.conf for a sandbox
// that asks the resolvers at the given addresses, or nobody where there is none.
func HostFiles(hostname string, resolvers ...string) Files {
	conf := ""
	for _, r := range resolvers {
		conf += "nameserver " + r + "\n"
	}
	if conf == "" {
		conf = "# this sandbox has no resolver\n"
	}
	return Files{
		"etc/hostname":    hostname + "\n",
		"etc/hosts":       "127.0.0.1\tlocalhost " + hostname + "\n::1\tlocalhost ip6-localhost\n",
		"etc/resolv.conf": conf,
	}
}

// WritePrivate fills dir, an existing empty directory, as the top layer of a
// sandbox: the mount points, extra ones below the root, and files. All of it
// belongs to owner, the host id of the sandbox's root.
func WritePrivate(dir string, owner uint32, extra []string, files Files) error {
	const op = "mount.private"
	root, err := os.OpenRoot(dir)
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	err = writePrivate(root, int(owner), slices.Concat(Points, extra), files)
	return sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, root.Close()))
}

func writePrivate(root *os.Root, owner int, dirs []string, files Files) error {
	if err := root.Chmod(".", 0o755); err != nil {
		return err
	}
	if err := root.Lchown(".", owner, owner); err != nil {
		return err
	}
	for _, d := range dirs {
		if err := privateDir(root, owner, d); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := root.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
		if err := root.Lchown(name, owner, owner); err != nil {
			return err
		}
	}
	return nil
}

func privateDir(root *os.Root, owner int, name string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("mount point %q is not below the root", name)
	}
	if parent := filepath.Dir(name); parent != "." {
		if err := privateDir(root, owner, parent); err != nil {
			return err
		}
	}
	err := root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return root.Lchown(name, owner, owner)
}

// RemovePrivate removes what WritePrivate made in dir, and dir. It crosses no
// mount: where something is mounted below dir it fails and deletes nothing of
// it.
func RemovePrivate(dir string) error {
	return sbxerr.Wrap(sbxerr.StateDir, "mount.private", owndir.RemoveTree(dir))
}

// IsPoint reports whether path is the root of a mount (statx(2),
// STATX_ATTR_MOUNT_ROOT, Linux 5.8). An absent path is not.
func IsPoint(path string) (bool, error) { return isPoint(unix.AT_FDCWD, path) }

// isPoint is IsPoint of a path below dir; an empty one is dir itself.
func isPoint(dir int, path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(dir, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_EMPTY_PATH, unix.STATX_MODE, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("statx %q: %w", path, err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, fmt.Errorf("statx %q: the kernel does not say what is a mount", path)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
