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

func TestFilesAreClosed(t *testing.T) {
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	for range 50 {
		if _, err := Read("/proc/self/status"); err != nil {
			t.Fatal(err)
		}
	}
	if after := open(); after > before+10 {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}
