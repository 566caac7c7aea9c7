package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWriteSparse: the bytes are as they were, zeros take no space, and bounds of
// messages that are no bounds of blocks lose nothing.
func TestWriteSparse(t *testing.T) {
	want := make([]byte, 8<<20+5)
	want[0], want[5000], want[4<<20] = 1, 2, 3
	for _, chunk := range []int{100, holeSize, 32 << 10, 128<<10 - 1, len(want)} {
		path := filepath.Join(t.TempDir(), "file")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		for rest := want; len(rest) > 0; {
			n := min(chunk, len(rest))
			if err := writeSparse(int(f.Fd()), rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := endSparse(int(f.Fd())); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("chunks of %d: %d bytes, want %d, or others; %v", chunk, len(got), len(want), err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil || chunk >= 32<<10 && st.Blocks*512 > 1<<20 {
			t.Errorf("chunks of %d: it takes %d bytes, %v", chunk, st.Blocks*512, err)
		}
	}
}
