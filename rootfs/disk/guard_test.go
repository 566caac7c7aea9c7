package disk_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/tests/need"
)

// TestGuard: while the host's disk has nothing besides the reserve, disks are full, also one that
// was just made. Then they take as much as before.
func TestGuard(t *testing.T) {
	need.Root(t, "it mounts a file system")
	need.Tools(t, "mkfs.ext4")
	var m disk.Maker
	disks := []made{attach(t, &m, disk.Size{Bytes: 16 << 20}), attach(t, &m, disk.Size{Bytes: 32 << 20})}
	points := func() ([]string, error) { return []string{disks[0].point, disks[1].point, t.TempDir(), "/absent"}, nil }
	writes := func() (failed int) {
		for _, d := range disks {
			file := filepath.Join(d.point, "f")
			if err := os.WriteFile(file, make([]byte, 8<<20), 0o600); errors.Is(err, unix.ENOSPC) {
				failed++
			} else if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		return failed
	}
	if n := writes(); n != 0 {
		t.Fatalf("%d disks are full without a guard", n)
	}
	free := disks[1].free(t)
	var log strings.Builder
	watch := func(reserve int64, failed int) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		var guard sync.WaitGroup
		guard.Go(func() {
			disk.Guard{Dir: "/", Reserve: reserve, Points: points, Log: slog.New(slog.NewTextHandler(&log, nil))}.Watch(ctx)
		})
		for end := time.Now().Add(20 * time.Second); writes() != failed; time.Sleep(10 * time.Millisecond) { // nothing announces it
			if time.Now().After(end) {
				t.Errorf("%d disks are full, want %d", writes(), failed)
				break
			}
		}
		stop()
		guard.Wait()
	}
	watch(1<<60, 2)
	if !useOf(t, disks[0]).Full() {
		t.Error("what is told of such a disk is not that it is full")
	}
	watch(0, 0)
	if got := disks[1].free(t); got < free {
		t.Errorf("%d blocks are free, before %d", got, free)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("the log has %d warnings:\n%s", n, log.String())
	}
}

func (d made) free(t *testing.T) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(d.point, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail)
}
