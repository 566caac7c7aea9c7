package peer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxLinks is how many symbolic links one path may have, as in path_resolution(7).
const maxLinks = 40

// resolve returns the path without symbolic links that dir, absolute and clean, stands
// for now. It follows links that nobody but root and the caller uid can change, such
// as /home to /data/home: no directory from the root to the link can be written by
// others. It refuses any other link: its owner could choose the directory that the
// sandbox gets.
//
// The result is opened without following links. So a directory that becomes a link in the
// meantime leads nowhere.
func resolve(dir string, uid uint32) (string, error) {
	rest, done := strings.Split(dir, "/"), "/"
	var safe []bool // of the directories above done
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			done, safe = filepath.Dir(done), safe[:max(0, len(safe)-1)]
			continue
		}
		target, own, err := linkIn(done, name, uid)
		switch {
		case err != nil:
			return "", err
		case target == "":
			done, safe = filepath.Join(done, name), append(safe, own)
			continue
		case !own || slices.Contains(safe, false):
			return "", sbxerr.WithRemedy(sbxerr.Workspace, "peer.workspace",
				fmt.Errorf("%q is a symbolic link that others than root and uid %d can change", sbxerr.Clip(filepath.Join(done, name)), uid),
				"name the directory by its real path (realpath DIR)")
		case links == maxLinks:
			return "", unix.ELOOP
		}
		links++
		if filepath.IsAbs(target) {
			done, safe = "/", nil
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// linkIn returns the target of the link name in dir, "" if it is no link, and whether
// only root and uid can change entries of dir. The path dir has no link.
func linkIn(dir, name string, uid uint32) (target string, own bool, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	parent, err := unix.Openat2(unix.AT_FDCWD, dir, &how)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, unix.Close(parent)) }()
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil {
		return "", false, err
	}
	// The content of the kernel's own file systems depends on the reader.
	own = (st.Uid == 0 || st.Uid == uid) && st.Mode&0o022 == 0 && notOfTheKernel(parent) == nil
	target, err = readlinkAt(parent, name)
	if errors.Is(err, unix.EINVAL) { // no link
		return "", own, nil
	}
	return target, own, err
}

func readlinkAt(parent int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(parent, name, buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	if n == 0 || n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}
