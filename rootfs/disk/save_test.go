package disk_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/tests/need"
)

// A saved disk holds what the disk holds, with its holes. One whose caller leaves in the middle
// leaves nothing.
func TestSave(t *testing.T) {
	need.Root(t, "it mounts a file system")
	need.Tools(t, "mkfs.ext4")
	var m disk.Maker
	d := attach(t, &m, disk.Size{Bytes: 1 << 30})
	if err := os.WriteFile(filepath.Join(d.point, "f"), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := disk.Save(ctx, d.file, d.point, filepath.Join(dir, "canceled")); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	saved := filepath.Join(dir, "saved")
	if err := disk.Save(t.Context(), d.file, d.point, saved); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(saved, &st); err != nil || st.Size != 1<<30 || st.Blocks*512 > 16<<20 {
		t.Errorf("%d bytes take %d: %v", st.Size, st.Blocks*512, err)
	}
	again := made{filepath.Join(dir, "copy"), filepath.Join(dir, "point")}
	if err := os.Mkdir(again.point, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Detach(again.file, again.point); err != nil {
			t.Error(err)
		}
	})
	if err := disk.AttachCopy(t.Context(), saved, again.file, again.point, nil); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(again.point, "f")); err != nil || st.Size() != 3<<20 {
		t.Errorf("in the copy: %v, %v", st, err)
	}
}
