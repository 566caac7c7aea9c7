package traffic

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
)

// appendLines adds text to the file at path. A sandbox that is being removed has
// no directory any more, and no need of it.
func appendLines(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// lines are the whole lines of the file at path after the offset from, without their
// ends; a file that is absent has none. The error is the last of them.
func lines(path string, from int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := os.Open(path)
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
