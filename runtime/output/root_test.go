package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// mounted mounts a file system for the time of the test.
func mounted(t *testing.T, kind, options string) string {
	t.Helper()
	need.Root(t, "it mounts")
	dir := t.TempDir()
	if err := unix.Mount("caisson-test", dir, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func TestProbe(t *testing.T) {
	if err := Probe(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := Probe(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, sbxerr.StateDir) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	dir := mounted(t, "tmpfs", "size=1m")
	if err := Probe(dir); err != nil {
		t.Error(err)
	}
	empty(t, dir)
	dir = mounted(t, "ramfs", "")
	if err := Probe(dir); !errors.Is(err, sbxerr.StateDir) || !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "punch a hole") {
		t.Errorf("a file system without holes: %v", err)
	}
	empty(t, dir)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

// A full disk loses the rest of the output, says so, and stops nobody. What
// was kept can be read, and a later daemon adds nothing behind the loss.
func TestFullDisk(t *testing.T) {
	const size = 1 << 20
	for _, tt := range []struct {
		name   string
		limit  int64
		before int // bytes that fill the disk before
	}{
		{"whole", 8 * size, 0},
		{"with a hole", size, 0},
		{"from the first byte", 8 * size, size},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := mounted(t, "tmpfs", fmt.Sprintf("size=%d", size))
			if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, tt.before), 0o600); err != nil {
				t.Fatal(err)
			}
			s := createAt(t, filepath.Join(dir, "stdout"), tt.limit)
			data := random(3 * size)
			r, w := pipe(t)
			filled := filling(s, r)
			write(t, w, data)
			if err := s.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			checkLost(t, s, data)
			again := open(t, s.path, tt.limit)
			if n, cut := again.Total(); n != s.kept || !cut || !errors.Is(again.Lost(), sbxerr.StateDir) {
				t.Errorf("after a restart: Total = %d, %v, Lost = %v", n, cut, again.Lost())
			}
			if err := os.Truncate(filepath.Join(dir, "other"), 0); err != nil { // there is space again
				t.Fatal(err)
			}
			write(t, again, []byte("behind the gap"))
			if n, _ := again.Total(); n != s.kept+14 || again.kept != s.kept {
				t.Errorf("after a restart: total %d, kept %d, want %d", n, again.kept, s.kept)
			}
			w.Close()
			if err := within(t, "end", filled); err != nil {
				t.Error(err)
			}
			if err := errors.Join(s.Close(), again.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func checkLost(t *testing.T, s *Store, data []byte) {
	t.Helper()
	if n, cut := s.Total(); n != int64(len(data)) || !cut || !errors.Is(s.Lost(), unix.ENOSPC) || !errors.Is(s.Lost(), sbxerr.StateDir) {
		t.Errorf("Total = %d, %v, Lost = %v", n, cut, s.Lost())
	}
	for _, from := range []int64{0, s.bound.head, s.kept, s.kept + 10} {
		var b strings.Builder
		err := copyTo(s, t.Context(), &b, from, false)
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("Follow from %d = %v", from, err)
		}
		wanted := want(data[:s.kept], s.bound.limit(), from)
		if lost := int64(len(data)) - max(from, s.kept); lost > 0 {
			wanted += Mark(lost)
		}
		same(t, fmt.Sprintf("from %d", from), b.String(), wanted)
	}
}

// A file that reached the size that its file system allows is as good as a
// full disk.
func TestFileTooBig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	size := largest(t, path) - 10
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, 1000)
	if n, cut := s.Total(); n != size || !cut {
		t.Errorf("Total = %d, %v", n, cut)
	}
	r, w := pipe(t)
	filled := filling(s, r)
	write(t, w, []byte("0123456789abcdef"))
	w.Close()
	if err := within(t, "end", filled); err != nil {
		t.Error(err)
	}
	s.Finish()
	if n, _ := s.Total(); n != size+16 || s.kept != size+10 || !errors.Is(s.Lost(), unix.EFBIG) {
		t.Errorf("Total = %d, kept %d, Lost = %v, want %d", n, s.kept, s.Lost(), size)
	}
	var b strings.Builder
	if err := copyTo(s, t.Context(), &b, size-3, true); !errors.Is(err, unix.EFBIG) {
		t.Errorf("Follow = %v", err)
	}
	same(t, "the end", b.String(), "\x00\x00\x000123456789"+Mark(6))
}

// largest finds the size that the file system of path allows.
func largest(t *testing.T, path string) int64 {
	t.Helper()
	good, bad := int64(1), int64(1<<62)
	if os.Truncate(path, bad) == nil {
		t.Skipf("a file may be larger than %d bytes", bad)
	}
	for good+1 < bad {
		if mid := good + (bad-good)/2; os.Truncate(path, mid) == nil {
			good = mid
		} else {
			bad = mid
		}
	}
	return good
}

// However much is written, the disk holds the limit and a step.
func TestHolesFreeBlocks(t *testing.T) {
	places := map[string]string{"as tests": t.TempDir()}
	if os.Geteuid() == 0 {
		places["tmpfs"] = mounted(t, "tmpfs", "size=64m")
	}
	for name, dir := range places {
		for _, limit := range []int64{10, 300_000, 10 << 20} {
			t.Run(fmt.Sprintf("%s %d", name, limit), func(t *testing.T) {
				s := createAt(t, filepath.Join(dir, fmt.Sprint(limit)), limit)
				r, w := pipe(t)
				filled := filling(s, r)
				flood := child(t, "flood", []string{fmt.Sprint(32 << 20)}, w) // three times what may be held
				w.Close()
				var most int64
				for ended := false; !ended; {
					select {
					case err := <-filled:
						if err != nil {
							t.Fatal(err)
						}
						ended = true
					case <-time.After(50 * time.Microsecond): // some samples while a step is filled
					}
					most = max(most, onDisk(t, s.path))
				}
				if err := flood.Wait(); err != nil {
					t.Error(err)
				}
				if allowed := limit + s.bound.step() + 4*page; most > allowed || most < limit-page {
					t.Errorf("%d bytes on the disk, allowed are %d", most, allowed)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				open(t, s.path, limit)
				if n, allowed := onDisk(t, s.path), limit+4*page; n > allowed {
					t.Errorf("%d bytes on the disk after a restart, allowed are %d", n, allowed)
				}
			})
		}
	}
}

func onDisk(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil && !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// Of a disk that is full before the first byte, output is kept elsewhere: less of it,
// and it is told how much the disk did not take.
func TestSpareFile(t *testing.T) {
	const size = 1 << 20
	for name, tt := range map[string]struct {
		options string
		fill    int // bytes that fill the disk before
		written int
		lost    int64
	}{
		"no space":           {fmt.Sprintf("size=%d", size), size, spareLimit, 0},
		"no inodes":          {"nr_inodes=1", 0, spareLimit, 0},
		"more than it holds": {fmt.Sprintf("size=%d", size), size, 4 * spareLimit, 3 * spareLimit},
		"room":               {fmt.Sprintf("size=%d", size), 0, spareLimit, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir, spare, room := mounted(t, "tmpfs", tt.options), filepath.Join(t.TempDir(), "stdout"), NewRoom(size)
			if tt.fill > 0 {
				if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, tt.fill), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			own := filepath.Join(dir, "stdout")
			s := createAt(t, own, 8*size)
			if err := s.Spare(spare, room); err != nil {
				t.Fatal(err)
			}
			s.Within(NewRoom(1)) // which bounds the disk alone
			data := random(tt.written)
			r, w := pipe(t)
			filled := filling(s, r)
			write(t, w, data)
			w.Close()
			if err := within(t, "end", filled); err != nil {
				t.Error(err)
			}
			if name == "room" {
				s.Finish()
				if _, err := os.Stat(spare); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the spare file is used: %v", err)
				}
				return
			}
			again := open(t, own, 8*size)
			if err := again.Spare(spare, NewRoom(size)); err != nil {
				t.Fatal(err)
			}
			for which, s := range map[string]*Store{"this": s, "a later": again} {
				var b strings.Builder
				if err := copyTo(s, t.Context(), &b, 0, false); err != nil {
					t.Error(err)
				}
				same(t, which+" process", b.String(), want(data, spareLimit, 0))
				if n := s.LostBytes(); n != tt.lost {
					t.Errorf("%s process: %d bytes are lost, want %d", which, n, tt.lost)
				}
			}
			s.Finish()
			if n := room.used.Load(); n < spareLimit/2 || n > 4*spareLimit+2*minStep {
				t.Errorf("%d bytes count in the room", n)
			}
			if err := errors.Join(s.Close(), again.Close()); err != nil || room.used.Load() != 0 {
				t.Errorf("%d bytes count in the room after the end: %v", room.used.Load(), err)
			}
		})
	}
}
