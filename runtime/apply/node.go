package apply

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/changes"
)

// node is what there was under a name.
type node struct {
	Type  string `json:"type"` // as in changes.State; empty where there is nothing
	Mode  uint32 `json:"mode"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"`
	ctime int64
	gid   uint32
	room  int64 // bytes that it takes
}

func nodeOf(st *unix.Stat_t) node {
	return node{
		Type: changes.TypeOf(st.Mode), Mode: st.Mode & 0o7777, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		gid: st.Gid, room: st.Blocks * 512,
	}
}

func (n node) isDir() bool { return n.Type == directory }

// is reports whether now is n, untouched. Moving a file changes its ctime, and what happens in
// a directory more than that.
func (n node) is(now node) bool {
	if n.Ino != now.Ino || n.Type != now.Type {
		return false
	}
	return n.isDir() || n.Size == now.Size && n.Mtime == now.Mtime
}

const (
	directory = "directory"
	file      = "file"
	symlink   = "symlink"
)

// inParent calls act with the directory in which name is, and the last part of name.
func inParent(root int, name string, act func(dir int, name string) error) error {
	dir, err := changes.OpenBeneath(root, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return errors.Join(act(dir, path.Base(name)), unix.Close(dir))
}

// nodeAt is what is under a name, nothing where that leads nowhere.
func nodeAt(root int, name string) (n node, err error) {
	err = inParent(root, name, func(dir int, name string) error {
		n, err = entryAt(dir, name)
		return err
	})
	if absent(err) {
		return node{}, nil
	}
	return n, err
}

// entryAt is what dir has under name.
func entryAt(dir int, name string) (node, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if absent(err) {
		return node{}, nil
	}
	return nodeOf(&st), err
}

// absent: nothing, a link or a file is where a directory should be.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// chmod changes the mode of the directory n, if it is still under its name.
func chmod(root int, name string, n node, mode uint32) error {
	fd, err := changes.OpenBeneath(root, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Ino != n.Ino {
		err = errChanged
	}
	if err == nil { // the set-group-ID bit is what the directory has from its parent
		err = unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), mode&0o1777|st.Mode&unix.S_ISGID, 0)
	}
	return errors.Join(err, unix.Close(fd))
}

// errChanged: the host is changed while the changes are applied.
var errChanged = errors.New("the host changed it meanwhile")
