package fault

import (
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// TestBrokenStartFromPool: where a sandbox of the pool cannot get the files of a snapshot, another one
// is made. Of one that a killed daemon had begun with, nothing is left.
func TestBrokenStartFromPool(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "profiles: {rw: {rootfs: rw, disk: 32M}}\npools: [{profile: rw, size: 1}]\n")
	full := func() {
		t.Helper()
		await(t, "a full pool", func() bool {
			var info struct {
				Pools []struct{ Ready int }
			}
			b.Run(t, "info", "-o", "json").JSON(t, &info)
			return len(info.Pools) == 1 && info.Pools[0].Ready == 1
		})
	}
	b.Run(t, "create", "--name", "first", "--profile", "rw")
	b.Run(t, "exec", "first", "--", "sh", "-c", "echo old >/workspace/w")
	b.Run(t, "snapshot", "create", "first", "--name", "old")
	b.Run(t, "rm", "--force", "first")
	for _, point := range need.Turn(t, []string{"rewind/prepared", "rewind/begun", "rewind/moved", "rewind/pivoted", "snapshot/saved", "update/disk"}) {
		full()
		b.arm(t, point+"=kill")
		create := begin(t, b.Daemon, "create", "--json", "--name", "box", "--from", "old")
		b.died(t, point)
		if r := create.end(t); r.Code == 0 {
			t.Errorf("%s: it was done: %s", point, r.Stdout)
		}
		if out := b.Run(t, "ls", "-a", "-q").Stdout; out != "" {
			t.Errorf("%s: left %q", point, out)
		}
		full()
		b.arm(t, point+"=error")
		b.Run(t, "create", "--name", "box", "--from", "old")
		b.disarm(t)
		if out := b.Run(t, "exec", "box", "--", "cat", "/workspace/w").Stdout; out != "old\n" {
			t.Errorf("%s=error: it has %q", point, out)
		}
		b.Run(t, "inspect", "box")
		b.Run(t, "rm", "--force", "box")
		full()
		for _, dir := range []string{"disks/*", "../*/sandboxes/*"} {
			if left, err := filepath.Glob(filepath.Join(b.Root, dir, "*.next")); err != nil || len(left) > 0 {
				t.Errorf("%s: left %v, %v", point, left, err)
			}
		}
	}
}
