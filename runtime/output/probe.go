package output

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Probe makes sure that the file system of the directory dir can hold stores:
// that splice(2) writes to it, and that holes can be punched and found. One that cannot
// is refused with [sbxerr.StateDir].
func Probe(dir string) error {
	const op = "output.probe"
	err := probe(dir)
	if Full(err) {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	if err != nil {
		return sbxerr.WithRemedy(sbxerr.StateDir, op, fmt.Errorf("%q cannot hold output: %w", dir, err),
			"put the daemon's root on a file system with holes, such as ext4, xfs, btrfs or tmpfs")
	}
	_, err = openSink()
	return sbxerr.Wrap(sbxerr.StateDir, op, err)
}

func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	err = errors.Join(owndir.Remove(f.Name()), tryHole(f))
	return errors.Join(err, f.Close())
}

// tryHole writes three pages, punches the second and looks at all.
func tryHole(f *os.File) error {
	data := make([]byte, 3*page)
	for i := range data {
		data[i] = byte(i%255 + 1) // never 0, which is what a hole reads as
	}
	if err := trySplice(f, data); err != nil {
		return err
	}
	if err := punch(f, span{page, 2 * page}); err != nil {
		return fmt.Errorf("punch a hole: %w", err)
	}
	if h, err := findHole(f, span{0, 3 * page}); err != nil || h != (span{page, 2 * page}) {
		return fmt.Errorf("find a hole of %d bytes at %d: found %v, %w", page, page, h, err)
	}
	clear(data[page : 2*page])
	got := make([]byte, len(data)+1)
	n, err := f.ReadAt(got, 0)
	if !errors.Is(err, io.EOF) || string(got[:n]) != string(data) {
		return fmt.Errorf("a hole changed what is beside it, or is none (read %d of %d bytes: %w)", n, len(data), err)
	}
	return nil
}

func trySplice(f *os.File, data []byte) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = w.Write(data) // less than any pipe holds
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	for at := int64(0); at < int64(len(data)); {
		var n int64
		conn, err := r.SyscallConn()
		if err == nil {
			cerr := conn.Control(func(fd uintptr) { n, err = splice(int(fd), f, at) })
			err = errors.Join(err, cerr)
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("splice: %w", err)
		}
		at += n
	}
	return nil
}
