package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
		await(t, "directory without a snapshot after "+point, func() bool { // a new daemon removes it beside its calls
			left, err := os.ReadDir(filepath.Join(b.Root, "snapshots"))
			return err == nil && len(left) == 0
		})
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

// TestKilledSnapshotOnEnd: a daemon that dies while it makes the snapshot of a sandbox that ended
// leaves its disk to the next one, which makes that once.
func TestKilledSnapshotOnEnd(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	for _, point := range []string{"keep/off", "keep/linked", "keep/kept"} {
		b.Run(t, "create", "--name", "box", "--disk", "32M", "--snapshot-on-end", "end")
		b.Run(t, "exec", "box", "--", "sh", "-c", "echo kept >f")
		b.arm(t, point+"=kill")
		rm := begin(t, b.Daemon, "rm", "--force", "box")
		b.died(t, point)
		rm.end(t)
		await(t, "the snapshot after "+point, func() bool { return b.Try("snapshot", "inspect", "end").Code == 0 })
		await(t, "the end of the sandbox after "+point, func() bool { return len(glob(t, filepath.Join(b.Root, "disks", "*"))) == 0 })
		if out := b.Run(t, "run", "--from", "end", "--disk", "32M", "--", "cat", "f").Stdout; out != "kept\n" {
			t.Errorf("%s: from the snapshot: %q", point, out)
		}
		if left := glob(t, filepath.Join(b.Root, "snapshots", "*")); len(left) != 1 {
			t.Errorf("%s: snapshots %q", point, left)
		}
		b.Run(t, "snapshot", "rm", "end")
		b.empty(t)
	}
}

// TestFailedSnapshotOnEnd: where the snapshot of a sandbox that ended cannot be made, its disk stays,
// and the next cleanup makes it.
func TestFailedSnapshotOnEnd(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	for _, point := range []string{"keep/off", "keep/linked", "keep/kept"} {
		b.Run(t, "create", "--name", "box", "--disk", "32M", "--snapshot-on-end", "end")
		b.Run(t, "exec", "box", "--", "sh", "-c", "echo kept >f")
		b.arm(t, point+"=error")
		r := b.Try("rm", "--json", "--force", "box")
		if done := point == "keep/kept"; done != (r.Code == 0) { // the snapshot was there for the second attempt
			t.Errorf("%s: %+v", point, r)
		} else if !done {
			checkTyped(t, r)
		}
		b.disarm(t)
		b.Run(t, "cleanup")
		if out := b.Run(t, "run", "--from", "end", "--disk", "32M", "--", "cat", "f").Stdout; out != "kept\n" {
			t.Errorf("%s: from the snapshot: %q", point, out)
		}
		b.Run(t, "snapshot", "rm", "end")
		b.empty(t)
	}
}

// TestFailedChangeset: where the changes of a sandbox that ended cannot be kept, its disk stays, and
// the next cleanup keeps them.
func TestFailedChangeset(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	for _, point := range []string{"changeset/made", "changeset/moved"} {
		dir := t.TempDir()
		b.Run(t, "create", "--name", "box", "--workspace", dir+":cow")
		b.Run(t, "exec", "box", "--", "sh", "-c", "echo kept >f")
		b.arm(t, point+"=error")
		if r := b.Try("rm", "--json", "--force", "box"); r.Code != 0 { // else the second attempt kept them
			checkTyped(t, r)
		}
		b.disarm(t)
		b.Run(t, "cleanup")
		b.Run(t, "apply", "box")
		if text := read(filepath.Join(dir, "f")); text != "kept\n" {
			t.Errorf("%s: the host has %q", point, text)
		}
		b.empty(t)
	}
}

// TestBrokenSnapshotArchive: a daemon that dies or fails in the middle of an export, an import, a
// comparison, or a snapshot of a directory leaves nothing of it: no file, mount or loop device. The repeated call works.
func TestBrokenSnapshotArchive(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "box", "--disk", "32M")
	b.Run(t, "exec", "box", "--", "sh", "-c", "mkdir deps && echo kept | tee f >deps/f")
	b.Run(t, "snapshot", "create", "box", "--name", "whole")
	archive := filepath.Join(t.TempDir(), "whole.tar")
	b.Run(t, "snapshot", "export", "whole", archive)
	disks := func() (n int) {
		t.Helper()
		all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if file, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(file), b.Root) { // else it went meanwhile
				n++
			}
		}
		return n
	}
	before := disks()
	if before == 0 {
		t.Fatal("the disk of the sandbox is not seen: nothing is shown")
	}
	b.Run(t, "create", "--name", "rw", "--rootfs", "rw", "--disk", "32M")
	b.Run(t, "snapshot", "create", "rw", "--name", "one")
	b.Run(t, "snapshot", "create", "rw", "--name", "two")
	b.Run(t, "rm", "--force", "rw")
	out := filepath.Join(t.TempDir(), "again.tar")
	for _, tt := range []struct {
		point string
		args  []string
	}{
		{"snapshot/exported", []string{"snapshot", "export", "whole", out}},
		{"snapshot/unpacked", []string{"snapshot", "import", "--name", "again", archive}},
		{"snapshot/opened", []string{"snapshot", "diff", "one", "two"}},
		{"snapshot/unpacked", []string{"snapshot", "create", "box", "--name", "again", "--path", "/workspace/deps"}},
	} {
		for _, how := range []string{"error", "kill"} {
			b.arm(t, tt.point+"="+how)
			c := begin(t, b.Daemon, tt.args...)
			if how == "kill" {
				b.died(t, tt.point)
			}
			if r := c.end(t); r.Code == 0 {
				t.Errorf("%v, %s: it worked", tt.args, how)
			}
			b.disarm(t)
			await(t, fmt.Sprintf("the snapshots as before %v, %s", tt.args, how), func() bool { // a daemon sweeps when it has begun
				left, err := os.ReadDir(filepath.Join(b.Root, "snapshots"))
				return err == nil && len(left) == 3 && left[0].Name() == "0+one" && left[1].Name() == "0+two" && left[2].Name() == "0+whole"
			})
			if spooled, err := filepath.Glob(filepath.Join(b.Root, "spool", "*")); err != nil || len(spooled) > 0 {
				t.Errorf("%v, %s: left %v, %v", tt.args, how, spooled, err)
			}
			if _, err := os.Lstat(out); err == nil {
				t.Errorf("%v, %s: half an archive is there", tt.args, how)
			}
			await(t, fmt.Sprintf("the disks as before %v, %s", tt.args, how), func() bool { return disks() == before })
		}
		b.Run(t, tt.args...)
		switch tt.args[1] {
		case "export":
			if err := os.Remove(out); err != nil {
				t.Error(err)
			}
		case "import", "create":
			b.Run(t, "snapshot", "rm", "again")
		}
	}
	b.Run(t, "snapshot", "rm", "whole", "one", "two")
	b.Run(t, "rm", "--force", "box")
	b.empty(t)
}
