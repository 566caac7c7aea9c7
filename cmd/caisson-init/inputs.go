package main

import (
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// input is an input file of a command, as this process made it.
type input struct {
	path     string
	dev, ino uint64
}

// writeInputs makes the input files of r. Those that it made go with r, also when it fails.
func (r *request) writeInputs() *failure {
	if len(r.Payload.Inputs) > 0 && r.inputData < 0 {
		return fail(initproto.StageRequest, syscall.EINVAL)
	}
	for _, f := range r.Payload.Inputs {
		if err := r.writeInput(f); err != nil {
			return fail(initproto.StageInput, err)
		}
	}
	return nil
}

// writeInput makes one file. Its content is the next of the descriptor's.
func (r *request) writeInput(f initproto.Input) error {
	dir, name, err := openParent(f.Path, true)
	if err != nil {
		return err
	}
	defer syscall.Close(dir)
	fd, err := openAt(dir, name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		_ = unlinkAt(dir, name, 0)
		return err
	}
	r.made = append(r.made, input{f.Path, uint64(stat.Dev), stat.Ino})
	if err := copyTo(fd, r.inputData, int(f.Size)); err != nil {
		return err
	}
	return syscall.Fchmod(fd, f.Mode)
}

// copyTo moves the next n bytes of from.
func copyTo(fd, from, n int) error {
	for n > 0 {
		moved, err := syscall.Sendfile(fd, from, nil, n)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case moved == 0:
			return syscall.EIO
		}
		n -= max(moved, 0)
	}
	return nil
}

// openParent opens the directory of path. It follows no symlink: a link could lead out of
// the tmpfs that path lies on, to a directory that outlives this process.
func openParent(path string, create bool) (dir int, name string, err error) {
	if create && strings.HasPrefix(path, initproto.InputDir+"/") {
		_ = syscall.Mkdir(initproto.InputDir, 0o700) // it may be there, or the open says why not
	}
	const flags = oPath | syscall.O_DIRECTORY | syscall.O_NOFOLLOW
	if dir, err = openAt(atCwd, "/", flags, 0); err != nil {
		return -1, "", err
	}
	rest := path[1:]
	for {
		first, more, found := strings.Cut(rest, "/")
		if first == "" || first == "." || first == ".." {
			syscall.Close(dir)
			return -1, "", syscall.EINVAL
		}
		if !found {
			return dir, first, nil
		}
		next, err := openAt(dir, first, flags, 0)
		syscall.Close(dir)
		if err != nil {
			return -1, "", err
		}
		dir, rest = next, more
	}
}

// removeInputs removes the files of list that are still those that were made.
func removeInputs(list []input) {
	for _, f := range list {
		dir, name, err := openParent(f.path, false)
		if err != nil {
			continue // a command has moved it away
		}
		stat, err := statAt(dir, name, atSymlinkNofollow)
		if err == nil && uint64(stat.Dev) == f.dev && stat.Ino == f.ino {
			_ = unlinkAt(dir, name, 0)
		}
		syscall.Close(dir)
	}
	if len(list) > 0 {
		_ = unlinkAt(atCwd, initproto.InputDir, atRemoveDir) // fails while another command has files there
	}
}
