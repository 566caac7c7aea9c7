package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
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
			again := open(t, s.o.Path, tt.limit)
			if n, cut := again.Total(); n != s.kept || !errors.Is(again.Lost(), sbxerr.StateDir) {
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
	for _, from := range []int64{0, s.kept, s.kept + 10} {
		var b strings.Builder
		err := copyTo(s, t.Context(), &b, from, false)
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("Follow from %d = %v", from, err)
		}
		if lost := Mark(int64(len(data)) - max(from, s.kept)); !strings.HasSuffix(b.String(), lost) {
			t.Errorf("from %d: no mark for what is lost", from)
		}
	}
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
					most = max(most, onDisk(t, s.o.Path))
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
				open(t, s.o.Path, limit).Finish()
				if n, allowed := onDisk(t, s.o.Path), limit+4*page; n > allowed {
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

// What the disk does not take is kept elsewhere, less of it, wherever the stream was;
// and a reader that holds its place has every byte.
func TestSpareFile(t *testing.T) {
	const size = 1 << 20
	for name, tt := range map[string]struct {
		options string
		fill    int   // bytes that fill the disk before
		limit   int64 // of the store
	}{
		"no space":        {fmt.Sprintf("size=%d", size), size, 8 * size},
		"no inodes":       {"nr_inodes=1", 0, 8 * size},
		"in the head":     {fmt.Sprintf("size=%d", size), 0, 8 * size},
		"behind the head": {fmt.Sprintf("size=%d", size), 0, size},
		"behind a hole":   {fmt.Sprintf("size=%d", size), size / 4, size / 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mounted(t, "tmpfs", tt.options)
			if tt.fill > 0 {
				if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, tt.fill), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			room := NewRoom(8 * size)
			o := Options{Path: filepath.Join(dir, "stdout"), Limit: tt.limit, Room: NewRoom(8 * size), Spare: filepath.Join(t.TempDir(), "stdout"), SpareRoom: room}
			s := createOf(t, o)
			data := random(6*size + 12345)
			held := s.Hold(0)
			r, w := pipe(t)
			filled := filling(s, r)
			go func() {
				_, _ = w.Write(data)
				w.Close()
			}()
			var got bytes.Buffer
			followed := make(chan error, 1)
			go func() { followed <- held.Follow(t.Context(), &got, true) }()
			if err := within(t, "end", filled); err != nil {
				t.Error(err)
			}
			again := openOf(t, o) // as a later daemon would
			s.Finish()
			if err := within(t, "all bytes", followed); err != nil {
				t.Error(err)
			}
			same(t, "the held reader", got.String(), string(data))
			held.Release()
			again.Finish()
			for which, s := range map[string]*Store{"this": s, "a later": again} {
				var b bytes.Buffer
				if err := copyTo(s, t.Context(), &b, 0, false); err == nil {
					t.Errorf("%s process: nothing is said", which)
				}
				marked := bytes.Split(b.Bytes(), []byte("\n[caisson: "))
				if len(marked) != 2 || !bytes.HasPrefix(data, marked[0]) || !bytes.HasSuffix(data, b.Bytes()[b.Len()-spareHalf+page:]) {
					t.Errorf("%s process: %d bytes in %d parts", which, b.Len(), len(marked))
				}
				if n, cut := s.Total(); n != int64(len(data)) || !cut || s.LostBytes() != 0 || s.Lost() == nil {
					t.Errorf("%s process: %d bytes, %v, %d lost, %v", which, n, cut, s.LostBytes(), s.Lost())
				}
			}
			if n := room.used.Load(); n > 4*spareHalf+2*page {
				t.Errorf("%d bytes count in the room", n)
			}
			if err := errors.Join(s.Close(), again.Close()); err != nil || room.used.Load() != 0 {
				t.Errorf("%d bytes count in the room after the end: %v", room.used.Load(), err)
			}
		})
	}
}
