package memwatch

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

func TestAddDescriptor(t *testing.T) {
	const text = `pos:	0
lock:	1: POSIX  ADVISORY  WRITE 12 00:2a:3 0 0
lock:	2: POSIX  ADVISORY  READ  12 00:2a:3 4 4
lock:	2: -> POSIX  ADVISORY  WRITE 13 00:2a:3 4 4
lock:	3: FLOCK  ADVISORY  WRITE 14 00:2a:3 0 EOF
`
	c := counter{held: &lockCount{}, most: 100, seen: map[string]bool{}}
	for range 2 { // two descriptors of the same file
		if ranges, err := c.addDescriptor(text); ranges != 3 || err != nil {
			t.Fatal(ranges, err)
		}
	}
	if want := (lockCount{Ranges: 3, Files: 2}); *c.held != want {
		t.Errorf("%+v, want %+v", *c.held, want)
	}
	c.held, c.most = &lockCount{}, 10
	if _, err := c.addDescriptor(strings.Repeat("lock:	1: POSIX ADVISORY WRITE 12 0:0:4 0 0\n", 100)); c.held.Ranges != 11 || err != nil {
		t.Errorf("%+v, %v, want no more than it takes", *c.held, err)
	}
	if _, err := (&counter{held: &lockCount{}, most: 1, seen: c.seen}).addDescriptor("lock:	1: POSIX\n"); err == nil {
		t.Error("a short line was read")
	}
}

// All locks of a process are counted, once each, however many threads it has.
func TestLocksOf(t *testing.T) {
	need.Root(t, "it compares the descriptors of threads")
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 300 {
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}); err != nil {
			t.Fatal(err)
		}
	}
	again, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	defer f.Close() // after again: closing it releases the locks
	got, err := locksOf([]int{os.Getpid(), 1 << 30}, 1000)
	if want := (lockCount{Ranges: 300, Files: 1}); err != nil || got != want { // the second descriptor is not read
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if got, err := locksOf([]int{os.Getpid()}, 100); err != nil || !got.MoreThan(100) || got.Ranges > 101 {
		t.Errorf("bounded: %+v, %v", got, err)
	}
	for n, want := range map[int]bool{299: true, 1 << 30: false} {
		if more, err := moreLocks(n); more != want || err != nil {
			t.Errorf("more than %d locks: %v, %v", n, more, err)
		}
	}
}

// lockCount of files count, whoever took them.
func TestLocksOfAnotherProcess(t *testing.T) {
	need.Root(t, "it looks into another process")
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if got, err := locksOf([]int{cmd.Process.Pid}, 10); err != nil || got.Files != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
