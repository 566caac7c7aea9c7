package apply

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/caisson-run/caisson/runtime/changes"
	"golang.org/x/sys/unix"
)

// maxOpen bounds the directories that are open at once. What is deeper is moved up first.
const maxOpen = 16

// remover removes a tree as its owner, who must be able to write to a directory to empty it.
type remover struct {
	top   int
	moved int
}

// empty removes what is in dir but what is kept, and reports whether something is.
func empty(dir int, keep func(name string) bool) (kept bool, err error) {
	r := remover{top: dir}
	return r.empty(dir, 0, keep)
}

func (r *remover) empty(dir, depth int, keep func(name string) bool) (kept bool, err error) {
	fd, err := changes.OpenBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	d := os.NewFile(uintptr(fd), ".")
	defer func() { err = errors.Join(err, d.Close()) }()
	for {
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return false, err
		}
		names, err := d.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		errs, gone := []error{err}, 0
		for _, name := range names {
			if keep(name) {
				kept = true
				continue
			}
			if err := r.remove(fd, name, depth); err != nil {
				errs = append(errs, err)
				continue
			}
			gone++
		}
		if gone == 0 {
			return kept, errors.Join(errs...)
		}
	}
}

func (r *remover) remove(dir int, name string, depth int) error {
	n, err := entryAt(dir, name)
	if err != nil || n.Type == "" {
		return err
	}
	if !n.isDir() {
		return unix.Unlinkat(dir, name, 0)
	}
	if n.Mode&0o700 != 0o700 {
		if err := chmod(dir, name, n, 0o700); err != nil {
			return err
		}
	}
	if depth >= maxOpen {
		r.moved++
		return unix.Renameat2(dir, name, r.top, fmt.Sprintf("x%d", r.moved), unix.RENAME_NOREPLACE)
	}
	fd, err := changes.OpenBeneath(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	_, err = r.empty(fd, depth+1, func(string) bool { return false })
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}
