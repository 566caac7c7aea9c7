package kernelfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"empty": "", "short": "one\n", "long": strings.Repeat("0123456789", chunk)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path); err != nil || got != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := Read(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Read(dir); !errors.Is(err, unix.EISDIR) {
		t.Errorf("directory: %v", err)
	}
}

func TestReadAt(t *testing.T) {
	proc, err := os.Open("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	if got, err := ReadAt(int(proc.Fd()), "comm"); err != nil || got == "" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFilesAreClosed: no descriptor leads to a file that was read, or that could not be.
func TestFilesAreClosed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := leadTo(t, file); n != 1 {
		t.Fatalf("%d descriptors lead to a file that is opened once", n)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err != nil {
		t.Error(err)
	}
	if _, err := Read(filepath.Dir(file)); err == nil {
		t.Error("a directory was read")
	}
	for _, path := range []string{file, filepath.Dir(file)} {
		if n := leadTo(t, path); n != 0 {
			t.Errorf("%d descriptors lead to %s", n, path)
		}
	}
}

// leadTo counts the descriptors of this process that lead to path.
func leadTo(t *testing.T, path string) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && to == path { // else it is closed: that of the list
			n++
		}
	}
	return n
}
