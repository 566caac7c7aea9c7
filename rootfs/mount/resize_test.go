package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// TestResizeTmpfs: the size of each named tmpfs changes and nothing else does, and
// whatever is no tmpfs is left alone.
func TestResizeTmpfs(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	s := newStand(t, newRootWith(t, base, func(layer string) {
		for _, dir := range []string{"tmp", "home"} {
			if err := os.Mkdir(filepath.Join(layer, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}))
	root := fmt.Sprintf("/proc/%d/root", s.pid)
	pidfd := s.handles(t)["pidfd"]
	err := onThrowawayThread(func() error {
		if err := enterMounts(pidfd); err != nil {
			return err
		}
		return errors.Join(
			unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=1M,nr_inodes=100"),
			unix.Mount("tmpfs", "/home", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=1M,nr_inodes=100"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/tmp/held", make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	before := map[string][]string{"/tmp": s.mounts(t, "/tmp"), "/home": s.mounts(t, "/home")}
	for _, kib := range []int64{4096, 768} { // larger, smaller
		if err := ResizeTmpfs(pidfd, map[string]int64{"/tmp": kib << 10, "/home": kib << 10}); err != nil {
			t.Fatal(err)
		}
		for point, lines := range before {
			want := strings.ReplaceAll(fmt.Sprint(lines), "size=1024k", fmt.Sprintf("size=%dk", kib))
			if got := fmt.Sprint(s.mounts(t, point)); got != want {
				t.Errorf("%s is %s, want %s", point, got, want)
			}
			var stat unix.Statfs_t
			if err := unix.Statfs(root+point, &stat); err != nil || int64(stat.Blocks)*stat.Bsize != kib<<10 {
				t.Errorf("%s has %d blocks of %d: %v", point, stat.Blocks, stat.Bsize, err)
			}
		}
	}
	for name, point := range map[string]string{"less than it holds": "/tmp", "no tmpfs": "/workspace", "not there": "/absent"} {
		if err := ResizeTmpfs(pidfd, map[string]int64{point: 256 << 10}); !errors.Is(err, sbxerr.Mount) || !strings.Contains(err.Error(), point) {
			t.Errorf("%s: %v", name, err)
		}
	}
	uses, err := UsedTmpfs(pidfd, []string{"/home", "/workspace", "/tmp", "/absent"})
	if len(uses) != 2 || uses[0] != (TmpfsUse{Point: "/home"}) || uses[1].Point != "/tmp" || uses[1].Full || uses[1].Percent < 66 || uses[1].Percent > 67 { // 512 of 768 KiB
		t.Errorf("the use: %+v", uses)
	}
	if !errors.Is(err, sbxerr.Mount) || !strings.Contains(err.Error(), `"/workspace"`) || !strings.Contains(err.Error(), `"/absent"`) {
		t.Errorf("the use of no tmpfs: %v", err)
	}
	if err := os.Symlink("/tmp", root+"/tmp/link"); err != nil {
		t.Fatal(err)
	}
	if err := ResizeTmpfs(pidfd, map[string]int64{"/tmp/link": 4 << 20}); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link: %v", err)
	}
	if uses, err := UsedTmpfs(pidfd, []string{"/tmp/link"}); len(uses) != 0 || !errors.Is(err, unix.ELOOP) {
		t.Errorf("the use behind a link: %+v, %v", uses, err)
	}
}
