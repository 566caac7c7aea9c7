package fault

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/need"
)

// TestKilledWithSizedVolumes: a daemon that dies when the image of a volume is made and not yet
// the volume leaves nothing of it, and the disk of one that is there stays.
func TestKilledWithSizedVolumes(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "")
	const at = "type=volume,src=v,dst=/v"
	b.Run(t, "volume", "create", "--size", "16M", "v")
	b.Run(t, "run", "--mount", at, "--", "sh", "-c", "echo kept > /v/file")
	b.arm(t, "volume/image=kill")
	create := begin(t, b.Daemon, "volume", "create", "--json", "--size", "32M", "w")
	b.died(t, "volume/image")
	if r := create.end(t); r.Code != 0 {
		checkTyped(t, r)
	}
	b.Refused(t, "SBX-231", "volume", "inspect", "--json", "w")
	if out := b.Run(t, "run", "--mount", at, "--", "cat", "/v/file").Stdout; out != "kept\n" {
		t.Errorf("the other volume: %q", out)
	}
	b.Run(t, "volume", "create", "--size", "16M", "w")
	b.Run(t, "volume", "rm", "v", "w")
	b.empty(t)
}

// TestKilledWithVolumes: a volume outlives a daemon that dies while it makes a sandbox of
// it. One that was being removed is gone after the next start, with all its files.
func TestKilledWithVolumes(t *testing.T) {
	b := newBreakable(t, "")
	const at = "type=volume,src=v,dst=/v"
	b.Run(t, "run", "--mount", at, "--", "sh", "-c", "mkdir /v/sub && echo kept > /v/sub/file")
	for _, point := range []string{"create/mounts", "create/container", "remove/mounts"} {
		b.arm(t, point+"=kill")
		run := begin(t, b.Daemon, "run", "--json", "--mount", at, "--", "cat", "/v/sub/file")
		b.died(t, point)
		if r := run.end(t); r.Code != 0 {
			checkTyped(t, r)
		}
		if out := b.Run(t, "run", "--mount", at, "--", "cat", "/v/sub/file").Stdout; out != "kept\n" {
			t.Errorf("%s: %q", point, out)
		}
	}
	b.arm(t, "volume/taken=kill")
	remove := begin(t, b.Daemon, "volume", "rm", "--json", "v")
	b.died(t, "volume/taken")
	if r := remove.end(t); r.Code != 0 {
		checkTyped(t, r)
	}
	b.Refused(t, "SBX-231", "volume", "inspect", "--json", "v")
	var left []os.DirEntry
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // nothing announces the end of the removal
		var err error
		if left, err = os.ReadDir(filepath.Join(b.Root, "volumes")); err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if out := b.Run(t, "run", "--mount", at, "--", "ls", "/v").Stdout; out != "" {
		t.Errorf("one of the same name holds %q", out)
	}
	b.Run(t, "volume", "rm", "v")
	b.empty(t)
}
