package fault

import (
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// TestDisksFillTheHost: disks and volumes that promise together more than the host has are full when it has
// only its reserve left, with ENOSPC. It keeps the reserve, refuses further disks, goes on with
// all else, and disks take more when there is room again.
func TestDisksFillTheHost(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	const reserve, count = 192 << 20, 44 // the guard gets a processor late beside so many writers
	d := newTightOf(t, "sandboxes: {disk_reserve: 192M}\n", "size=768m")
	volume := func() harness.Result {
		return d.Try("run", "--mount", "type=volume,src=v,dst=/v", "--", "sh", "-c", "rm -f /v/x; dd if=/dev/zero of=/v/x bs=256k count=4")
	}
	d.Run(t, "volume", "create", "--size", "16M", "v")
	if r := volume(); r.Code != 0 {
		t.Fatalf("a volume while the host has room: %s", r.Stderr)
	}
	free := func() int64 {
		var st unix.Statfs_t
		if err := unix.Statfs(d.disks["root"], &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Bavail) * st.Bsize
	}
	if room := free() - reserve; room < 3*16<<20 || room > count*14<<20 {
		t.Fatalf("%d disks of 16M neither fit in %d bytes nor fill them", count, room)
	}
	ids := make([]string, count)
	for i := range ids {
		ids[i] = strings.TrimSpace(d.Run(t, "create", "--rootfs", "rw", "--disk", "16M").Stdout)
	}
	var fills sync.WaitGroup
	for i, id := range ids {
		fills.Go(func() {
			where := []string{"/workspace/big", "/home/caisson/big"}[i%2]
			r := d.Try("exec", id, "--", "sh", "-c", "mkdir -p /home/caisson; dd if=/dev/zero of="+where+" bs=256k; sync; touch "+where)
			if r.Code != 0 || !strings.Contains(r.Stderr, "No space left on device") || strings.Contains(r.Stderr, "I/O") {
				t.Errorf("code %d, %s", r.Code, r.Stderr)
			}
		})
	}
	fills.Wait()
	if left := free(); left < reserve/2 {
		t.Errorf("the host has %d bytes left of its reserve of %d", left, reserve)
	}
	d.Refused(t, "SBX-234", "run", "-o", "json", "--disk", "16M", "--", "true")
	if r := volume(); r.Code != 1 || !strings.Contains(r.Stderr, "No space left on device") || !strings.Contains(r.Stderr, "the volume v was full") {
		t.Errorf("a volume: code %d, %s", r.Code, r.Stderr)
	}
	if out := d.Run(t, "run", "--", "echo", "on").Stdout; out != "on\n" {
		t.Errorf("without a disk: %q", out)
	}
	for _, id := range ids[1:] {
		d.Run(t, "rm", "--force", id)
	}
	await(t, "room for a disk", func() bool {
		return d.Try("exec", ids[0], "--", "sh", "-c", "rm -f /workspace/big; dd if=/dev/zero of=/workspace/more bs=1M count=8").Code == 0
	})
	await(t, "room for a volume", func() bool { return volume().Code == 0 })
	if n := strings.Count(d.Log(), "no room besides its reserve"); n == 0 {
		t.Error("the log says nothing")
	}
	d.Run(t, "rm", "--force", ids[0])
	d.Run(t, "volume", "rm", "v")
	checkSound(t, d.Daemon)
}
