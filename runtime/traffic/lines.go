package traffic

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/caisson-run/caisson/owndir"
)

// appendLines adds text to the file at path. A sandbox that is being removed has
// no directory any more, and no need of it.
func appendLines(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(appendWhole(f, text), f.Close())
}

// appendWhole adds text to f, or nothing of it: no space is left for half a line. One
// that was torn before ends as one that is none.
func appendWhole(f *os.File, text []byte) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], max(size-1, 0)); err == nil && last[0] != '\n' {
		text = append([]byte(" \n"), text...) // no name ends in a space
	}
	if _, err := f.Write(text); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return nil
}

// lines are the whole lines of the file at path after the offset from, without their
// ends; a file that is absent has none. The error is the last of them.
func lines(path string, from int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := owndir.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			yield(nil, err)
			return
		}
		r := bufio.NewReaderSize(f, 16<<10)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil { // the end, and what has no newline is torn
				return
			}
			if !yield(line[:len(line)-1], nil) {
				return
			}
		}
	}
}
