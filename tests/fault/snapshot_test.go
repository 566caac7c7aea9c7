package fault

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// TestBrokenSnapshot: a daemon that dies or fails while it makes a snapshot leaves none, and a
// sandbox whose processes go on.
func TestBrokenSnapshot(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "box", "--disk", "32M")
	b.Run(t, "exec", "box", "--", "sh", "-c", "echo kept >f; (while :; do date >>busy; sleep 0.01; done) >/dev/null 2>&1 &")
	goesOn := func(point string) {
		t.Helper()
		const look = "a=$(wc -c <busy); sleep 0.3; [ $(wc -c <busy) -gt $a ] && cat f"
		if out := b.Run(t, "exec", "box", "--", "sh", "-c", look).Stdout; out != "kept\n" {
			t.Errorf("%s: the sandbox: %q", point, out)
		}
		if left, err := os.ReadDir(filepath.Join(b.Root, "snapshots")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", point, left, err)
		}
	}
	for _, point := range []string{"snapshot/frozen", "snapshot/saved"} {
		b.arm(t, point+"=error")
		if r := b.Try("snapshot", "create", "--json", "box"); r.Code == 0 {
			t.Errorf("%s: a snapshot was made", point)
		}
		b.arm(t, "")
		goesOn(point + "=error")
		b.arm(t, point+"=kill")
		create := begin(t, b.Daemon, "snapshot", "create", "--json", "box")
		b.died(t, point)
		if r := create.end(t); r.Code == 0 {
			t.Errorf("%s: a snapshot was made: %s", point, r.Stdout)
		} else {
			checkTyped(t, r)
		}
		goesOn(point + "=kill")
	}
	b.Run(t, "snapshot", "create", "box", "--name", "whole")
	if out := b.Run(t, "run", "--from", "whole", "--", "cat", "f").Stdout; out != "kept\n" {
		t.Errorf("from the snapshot: %q", out)
	}
	b.Run(t, "snapshot", "rm", "whole")
	b.Run(t, "rm", "--force", "box")
	b.empty(t)
}
