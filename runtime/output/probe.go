package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Probe makes sure that the file system of the directory dir can hold stores:
// that splice(2) writes to it, and that holes can be punched and found. One that cannot
// is refused with [sbxerr.StateDir].
func Probe(dir string) error {
	const op = "output.probe"
	_, err := sink()
	if err == nil {
		err = probe(dir)
	}
	if err == nil || Full(err) {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return sbxerr.WithRemedy(sbxerr.StateDir, op, fmt.Errorf("%q cannot hold output: %w", dir, err),
		"put the daemon's root on a file system with holes, such as ext4, xfs, btrfs or tmpfs")
}

// probe keeps the first and the last page of three, as a store does, and looks for the
// hole between them as a later daemon does.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(f.Close(), Remove(f.Name())) }()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	data := bytes.Repeat([]byte("caisson\n"), 3*page/8) // less than any pipe holds, and no zeros, as in a hole
	_, err = w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	o := Options{Path: f.Name(), Limit: 2 * page}
	s, err := Open(o)
	if err != nil {
		return err
	}
	err = s.Fill(context.Background(), r)
	s.Finish()
	if err = errors.Join(err, s.Lost()); err != nil {
		return err
	}
	if s, err = Open(o); err != nil {
		return err
	}
	defer s.Close()
	s.Finish()
	var got bytes.Buffer
	if _, err := s.Follow(context.Background(), &got, 0, true); err != nil {
		return err
	}
	if s.hole != (span{page, 2 * page}) || !bytes.Equal(got.Bytes(), data[:2*page]) {
		return fmt.Errorf("a hole at byte %d of %d bytes reads as one at %d of %d", page, page, s.hole.from, s.hole.size())
	}
	return nil
}
