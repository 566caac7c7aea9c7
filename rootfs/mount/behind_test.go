package mount_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/tests/need"
)

// TestRemovePointBehind: a mount and its point are gone at once, and what is absent is removed.
func TestRemovePointBehind(t *testing.T) {
	need.Root(t, "it mounts a file system")
	point := filepath.Join(t.TempDir(), "point")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(point, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := mount.RemovePointBehind(point); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(point); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the point: %v", err)
		}
	}
}
