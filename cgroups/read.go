package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/kernelfile"
)

// Reading is a number that not every kernel offers.
type Reading struct {
	N     int64
	Known bool
}

// String returns the number or "unknown".
func (r Reading) String() string {
	if !r.Known {
		return "unknown"
	}
	return strconv.FormatInt(r.N, 10)
}

func known(n int64) Reading { return Reading{N: n, Known: true} }

// readString returns a file of a group without surrounding white space.
func readString(dir, file string) (string, error) {
	if dir == "" {
		return "", noHierarchy(file)
	}
	text, err := kernelfile.Read(filepath.Join(dir, file))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(text), nil
}

// writeFile writes to a file of a group. It never creates one.
func writeFile(dir, file, value string) error {
	if dir == "" {
		return noHierarchy(file)
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// noHierarchy stands in for the path of a controller that is not mounted:
// joined to "" a file name would be looked up in the working directory.
func noHierarchy(file string) error {
	return &fs.PathError{Op: "find the hierarchy of", Path: file, Err: fs.ErrNotExist}
}

// readInt reads a file that holds one number. "max" is math.MaxInt64, and so
// is any number above it: v1 shows "no limit" as a huge one.
func readInt(dir, file string) (int64, error) {
	s, err := readString(dir, file)
	if err != nil {
		return 0, err
	}
	return parseInt(dir, file, s)
}

func parseInt(dir, file, s string) (int64, error) {
	if s == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %q of %q: %w", s, filepath.Join(dir, file), err)
	}
	return int64(min(n, math.MaxInt64)), nil
}

// readFlat reads a flat keyed file, one "key number" per line. Lines of any
// other form are not ours to judge and are left out.
func readFlat(dir, file string) (map[string]int64, error) {
	s, err := readString(dir, file)
	if err != nil {
		return nil, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			values[key] = int64(min(n, math.MaxInt64))
		}
	}
	return values, nil
}

// lineSeparator stands between the lines that sortedLines joins.
const lineSeparator = "; "

// sortedLines makes the text of a file whose order means nothing comparable.
func sortedLines(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, lineSeparator)
}
