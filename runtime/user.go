package runtime

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/plan"
)

// resolveUser turns a user into ids by the passwd and group files of the
// image whose unpacked layers, topmost first, are given. The files are hostile
// input: each is opened below its layer's directory, where no symbolic link
// leads out, and image.ResolveUser bounds what it reads.
func resolveUser(layers []string, name string) (_ plan.User, err error) {
	passwd, err := openInLayers(layers, "passwd")
	if err != nil {
		return plan.User{}, err
	}
	defer func() { err = errors.Join(err, passwd.Close()) }()
	group, err := openInLayers(layers, "group")
	if err != nil {
		return plan.User{}, err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	uid, gid, groups, err := image.ResolveUser(name, passwd, group)
	return plan.User{UID: uid, GID: gid, Groups: groups}, err
}

// openInLayers opens the file that an overlay of the layers would show at
// etc/name, or an empty one where it would show none. An upper layer may hide
// what is below it: by a whiteout, an opaque directory, or anything else that
// is no directory (overlayfs.rst).
func openInLayers(layers []string, name string) (io.ReadCloser, error) {
	for _, dir := range layers {
		f, last, err := openInLayer(dir, name)
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.ImageUser, "runtime.user", err)
		}
		if f != nil {
			return f, nil
		}
		if last {
			break
		}
	}
	return io.NopCloser(strings.NewReader("")), nil
}

// openInLayer opens etc/name of one layer. Without a file, last says whether
// the layer hides those below it.
func openInLayer(dir, name string) (f *os.File, last bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	etc, err := root.Lstat("etc")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil || !etc.IsDir() {
		return nil, true, err
	}
	st, err := root.Lstat("etc/" + name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		last, err = opaque(filepath.Join(dir, "etc"))
		return nil, last, err
	case err != nil:
		return nil, true, err
	case st.Mode()&fs.ModeCharDevice != 0: // a whiteout
		return nil, true, nil
	case !st.Mode().IsRegular():
		return nil, true, fmt.Errorf("the image's /etc/%s is no regular file", name)
	}
	f, err = root.Open("etc/" + name)
	return f, true, err
}

// opaque reports whether an overlay hides what lies below dir.
func opaque(dir string) (bool, error) {
	value := make([]byte, 1)
	n, err := unix.Lgetxattr(dir, "trusted.overlay.opaque", value)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.ERANGE):
		return true, nil // longer than any value that it has
	}
	return n == 1 && value[0] == 'y', err
}
