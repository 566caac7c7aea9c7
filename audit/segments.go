package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// segments lists the first numbers of the segments in dir, in order.
func segments(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var firsts []uint64
	for _, e := range entries {
		digits, found := strings.CutSuffix(e.Name(), ".jsonl")
		first, err := strconv.ParseUint(digits, 10, 64)
		if found && err == nil && len(digits) == 20 {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// lastRecord finds the last whole record of a segment that is open to read: its place, and
// the offset after it, which is 0 where there is none.
func lastRecord(f *os.File) (last Head, end int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Head{}, 0, err
	}
	from := max(0, size-2*MaxRecord) // what is torn, and the record before it
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return Head{}, 0, err
	}
	for at := len(tail); at > 0; {
		newline := bytes.LastIndexByte(tail[:at], '\n')
		if newline < 0 {
			break
		}
		begin := bytes.LastIndexByte(tail[:newline], '\n') + 1
		if begin == 0 && from > 0 {
			break
		}
		line := tail[begin:newline]
		if seq, _, ok := splitRecord(line); ok {
			return Head{seq, sum(line)}, from + int64(newline) + 1, nil
		}
		at = begin
	}
	if from > 0 {
		return Head{}, 0, fmt.Errorf("%s has no record in its last %d bytes", f.Name(), len(tail))
	}
	return Head{}, 0, nil
}

// forbidden is err of whoever may not read the log, or reads where there is none.
func forbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return sbxerr.WithRemedy(sbxerr.Peer, "audit.read", err, "the audit log is for root alone: have root read it")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return sbxerr.WithRemedy(sbxerr.ClientIO, "audit.read", err, "name the directory of the log, ROOT/audit of the daemon")
	}
	return sbxerr.Wrap(sbxerr.ClientIO, "audit.read", err)
}
