package uncharged

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
		if _, err := MoreLocks(1 << 16); err != nil {
			b.Fatal(err)
		}
	}
}
