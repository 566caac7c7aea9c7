package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// A stream of any length, in writes of any size, is whole up to the limit, and
// past it is its first half, a mark with the true count, and its last half;
// from whatever offset, and the same after a restart.
func TestKeepsHeadAndTail(t *testing.T) {
	const limit = 101 // odd: the halves differ
	for _, total := range []int{0, 1, 50, 51, 52, 100, 101, 102, 151, 152, 153, 400, 1000} {
		for _, step := range []int{1, 7, 64, 1000} {
			t.Run(fmt.Sprintf("%d by %d", total, step), func(t *testing.T) {
				data := random(total)
				s := create(t, limit)
				for rest := data; len(rest) > 0; {
					n := min(step, len(rest))
					write(t, s, rest[:n])
					rest = rest[n:]
				}
				s.Finish()
				again := open(t, s.o.Path, limit)
				again.Finish()
				for _, s := range []*Store{s, again} {
					for _, from := range []int64{0, 1, 50, 51, 52, 100, 101, 102, int64(total), int64(total) + 9} {
						same(t, fmt.Sprintf("from %d", from), follow(t, s, from), want(data, limit, from))
					}
					if n, cut := s.Total(); n != int64(total) || cut != (total > limit) || s.Lost() != nil {
						t.Errorf("Total = %d, %v, Lost = %v", n, cut, s.Lost())
					}
				}
			})
		}
	}
}

// Limits around the sizes of pages, chunks and holes, in random chunks through
// a pipe, reopened at random, read from everywhere.
func TestModel(t *testing.T) {
	limits := []int64{2, 3, page - 1, 2*page + 1, 64 << 10, 300001, minStep, 3*minStep + 5}
	for _, limit := range limits {
		for _, total := range []int64{limit - 1, limit + 1, limit + limit/3 + 9, 4*limit + 3*minStep} {
			t.Run(fmt.Sprintf("limit %d total %d", limit, total), func(t *testing.T) {
				data := random(int(total))
				s := create(t, limit)
				s = pour(t, s, data)
				s.Finish()
				for _, from := range edges(limit, total) {
					same(t, fmt.Sprintf("from %d", from), follow(t, s, from), want(data, limit, from))
				}
				if n, cut := s.Total(); n != total || cut != (total > limit) || s.Lost() != nil {
					t.Errorf("Total = %d, %v, Lost = %v", n, cut, s.Lost())
				}
			})
		}
	}
}

// pour fills s with data through one pipe, by several stores one after another.
func pour(t *testing.T, s *Store, data []byte) *Store {
	t.Helper()
	r, w := pipe(t)
	go func() {
		defer w.Close()
		for rest := data; len(rest) > 0; {
			n := min(1+rand.IntN(200_000), len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			rest = rest[n:]
		}
	}()
	for {
		filled := filling(s, r)
		if rand.IntN(4) > 0 {
			if err := within(t, "end of the pipe", filled); err != nil {
				t.Fatal(err)
			}
			return s
		}
		until := rand.Int64N(int64(len(data)))
		eventually(t, "bytes", func() bool { n, _ := s.Total(); return n >= until })
		if err := r.SetReadDeadline(past); err != nil {
			t.Fatal(err)
		}
		if err := within(t, "end of Fill", filled); err == nil {
			return s
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), r.SetReadDeadline(never)); err != nil {
			t.Fatal(err)
		}
		s = open(t, s.o.Path, s.o.Limit)
	}
}

func edges(limit, total int64) []int64 {
	from := []int64{0, total, total + 1, rand.Int64N(total + 1)}
	for _, at := range []int64{limit - limit/2, limit, total - limit/2} {
		from = append(from, max(0, at-1), max(0, at), max(0, at+1))
	}
	return from
}

func TestNoFileWithoutOutput(t *testing.T) {
	s := create(t, 100)
	r, w := pipe(t)
	filled := filling(s, r)
	w.Close()
	if err := within(t, "end", filled); err != nil {
		t.Error(err)
	}
	s.Finish()
	if _, err := os.Stat(s.o.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat: %v", err)
	}
	again := open(t, s.o.Path, 100)
	if n, cut := again.Total(); n != 0 || cut {
		t.Errorf("Total = %d, %v", n, cut)
	}
	write(t, again, []byte("late"))
	again.Finish()
	same(t, "after the restart", follow(t, again, 0), "late")
	for range 2 {
		if err := Remove(s.o.Path); err != nil {
			t.Error(err)
		}
	}
	if err := Remove(filepath.Dir(s.o.Path)); !errors.Is(err, sbxerr.StateDir) {
		t.Errorf("a directory: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	at := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, shared := at("plain", 0o600), at("shared", 0o600)
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(plain, link), unix.Mkfifo(fifo, 0o600), os.Link(shared, filepath.Join(dir, "second"))); err != nil {
		t.Fatal(err)
	}
	open(t, plain, 100) // what the others differ from
	for _, tt := range []struct {
		name string
		call func() (*Store, error)
		code sbxerr.Code
		text string
	}{
		{"a small limit", func() (*Store, error) { return Create(Options{Path: filepath.Join(dir, "new"), Limit: 1}) }, sbxerr.Limits, "an output limit of 1 bytes is too small, give at least 2"},
		{"no limit", func() (*Store, error) { return Open(Options{Path: plain, Limit: 0}) }, sbxerr.Limits, "limit of 0 bytes"},
		{"a path that is taken", func() (*Store, error) { return Create(Options{Path: plain, Limit: 100}) }, sbxerr.StateDir, "exists already"},
		{"a path under a file", func() (*Store, error) { return Create(Options{Path: plain + "/x", Limit: 100}) }, sbxerr.StateDir, "not a directory"},
		{"a link", func() (*Store, error) { return Open(Options{Path: link, Limit: 100}) }, sbxerr.StateDir, "too many levels of symbolic links"},
		{"a fifo", func() (*Store, error) { return Open(Options{Path: fifo, Limit: 100}) }, sbxerr.StateDir, "is not a regular file"},
		{"a directory", func() (*Store, error) { return Open(Options{Path: dir, Limit: 100}) }, sbxerr.StateDir, "is a directory"},
		{"two names", func() (*Store, error) { return Open(Options{Path: shared, Limit: 100}) }, sbxerr.StateDir, "has 2 names"},
		{"readable by all", func() (*Store, error) { return Open(Options{Path: at("wide", 0o644), Limit: 100}) }, sbxerr.StateDir, "has mode 0644, not 0600"},
	} {
		if _, err := tt.call(); sbxerr.Of(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.text) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	s := create(t, 100)
	if err := copyTo(s, t.Context(), io.Discard, -1, true); !errors.Is(err, sbxerr.Config) {
		t.Errorf("a negative offset: %v", err)
	}
}

func TestForeignOwner(t *testing.T) {
	need.Root(t, "it gives a file away")
	path := filepath.Join(t.TempDir(), "stdout")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Path: path, Limit: 100}); !errors.Is(err, sbxerr.StateDir) || !strings.Contains(err.Error(), "belongs to uid 12345") {
		t.Errorf("got %v", err)
	}
}

// Ended commands are many: a store that is finished holds no descriptor, and a
// reader one only while it reads.
func TestFinishedHoldsNoDescriptor(t *testing.T) {
	s := create(t, 100)
	write(t, s, []byte("abc"))
	if !isOpen(t, s.o.Path) {
		t.Fatal("a store that is written has no descriptor")
	}
	s.Finish()
	if isOpen(t, s.o.Path) {
		t.Error("a finished store holds a descriptor")
	}
	same(t, "of a finished store", follow(t, s, 1), "bc")
	if isOpen(t, s.o.Path) {
		t.Error("a reader that has ended holds a descriptor")
	}
}

// A reader is not stopped by the end of the stream, wherever it is.
func TestFinishedWhileItIsRead(t *testing.T) {
	for range 50 {
		s := create(t, 1<<20)
		write(t, s, bytes.Repeat([]byte("x"), 300<<10))
		go s.Finish()
		if n := len(follow(t, s, 0)); n != 300<<10 {
			t.Fatalf("read %d bytes", n)
		}
	}
}

func isOpen(t *testing.T, path string) bool {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		return err == nil && target == path
	})
}

func TestAfterTheEnd(t *testing.T) {
	s := create(t, 100)
	write(t, s, []byte("abc"))
	s.Finish()
	write(t, s, []byte("thrown away"))
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if n, cut := s.Total(); n != 3 || cut || s.Lost() != nil {
		t.Errorf("Total = %d, %v, Lost = %v", n, cut, s.Lost())
	}
	same(t, "at the end of a closed store", follow(t, s, 3), "")
	if _, err := s.Write([]byte("x")); !errors.Is(err, sbxerr.State) {
		t.Errorf("Write after Close: %v", err)
	}
	if err := copyTo(s, t.Context(), io.Discard, 0, true); !errors.Is(err, sbxerr.State) || errors.Is(err, os.ErrClosed) {
		t.Errorf("Follow after Close: %v", err)
	}
}
