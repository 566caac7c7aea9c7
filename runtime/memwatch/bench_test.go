package memwatch

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What a look at the locks costs with 2,500 of them, five for each of 500 sandboxes.
func BenchmarkMoreLocks(b *testing.B) {
	for range 500 {
		f, err := os.CreateTemp(b.TempDir(), "")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		for i := range 5 {
			if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		if _, err := moreLocks(1 << 16); err != nil {
			b.Fatal(err)
		}
	}
}

// What it costs to ask one process with 1,000 descriptors, of which each has a lock. That is
// done where the host has many locks.
func BenchmarkLocksOf(b *testing.B) {
	for range 1000 {
		f, err := os.CreateTemp(b.TempDir(), "")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if held, err := locksOf([]int{os.Getpid()}, 1<<16); err != nil || held.Files < 1000 {
			b.Fatal(held, err)
		}
	}
}

// The same where all descriptors are of one file with 10,000 ranges.
func BenchmarkLocksOfOneFile(b *testing.B) {
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	var files []*os.File // closing one releases the locks
	for range 1000 {
		again, err := os.Open(f.Name())
		if err != nil {
			b.Fatal(err)
		}
		files = append(files, again)
	}
	for i := range 10_000 {
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if held, err := locksOf([]int{os.Getpid()}, 1<<16); err != nil || held.Ranges != 10_000 {
			b.Fatal(held, err)
		}
	}
	for _, f := range append(files, f) {
		_ = f.Close()
	}
}
