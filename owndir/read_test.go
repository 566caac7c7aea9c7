package owndir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is no regular file is refused at once, and so is a file that is too large.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file, fifo, link := filepath.Join(dir, "file"), filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(file, 4); err != nil || string(data) != "data" {
		t.Errorf("a file: %q, %v", data, err)
	}
	if _, err := ReadFile(file, 3); err == nil {
		t.Error("a file that is too large is read")
	}
	for _, path := range []string{fifo, link, dir, filepath.Join(dir, "absent")} {
		done := make(chan error, 1)
		go func() { _, err := ReadFile(path, 4); done <- err }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s is read", path)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s is waited for", path)
		}
	}
}
