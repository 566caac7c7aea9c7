package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// TestBrokenRewind: a sandbox that is put back to a snapshot by a daemon that dies or fails at some
// step has all of the snapshot's files, or all of its own: those of the root, of /workspace, of
// /tmp and of a cache alike. It takes commands, and what it publishes is reached.
func TestBrokenRewind(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	for kind, create := range map[string][]string{
		"root": {"--profile", "dev", "--user", "root"},
		"disk": {"--disk", "32M", "--cache", "c=/mine"},
	} {
		t.Run(kind, func(t *testing.T) {
			b := newBreakable(t, "sandboxes: {disk: 32M}\nprofiles: {dev: {seccomp: compat, rootfs: rw, root_user: setup}}\n")
			make := func() {
				b.Run(t, append([]string{"create", "--name", "box"}, create...)...)
				b.Run(t, "exec", "box", "--", "sh", "-c", "echo old >/workspace/w; [ ! -w / ] || echo old >/r")
				b.Run(t, "snapshot", "create", "box", "--name", "old")
			}
			change := func() {
				b.Run(t, "exec", "box", "--", "sh", "-c", "echo new >/workspace/w; echo new >/tmp/t; [ ! -d /mine ] || echo new >/mine/c; [ ! -w / ] || echo new >/r")
				b.Run(t, "exec", "-d", "box", "--", "sleep", "1000")
			}
			const look = `w=$(cat /workspace/w); r=$w; [ ! -e /r ] || r=$(cat /r); t=old; [ ! -e /tmp/t ] || t=new; c=$t; [ ! -d /mine ] || c=$(cat /mine/c 2>/dev/null || echo old); echo $w $r $t $c; touch /workspace/more`
			has := func(point, want string) {
				t.Helper()
				if out := b.Run(t, "exec", "box", "--", "sh", "-c", look).Stdout; out != fmt.Sprintf("%[1]s %[1]s %[1]s %[1]s\n", want) {
					t.Errorf("%s: it has %q, want all %s", point, out, want)
				}
				b.Run(t, "inspect", "box") // compares it with its declaration
				for _, dir := range []string{"disks/*", "../*/sandboxes/*", "../*/sandboxes/*/mounts"} {
					if left, err := filepath.Glob(filepath.Join(b.Root, dir, "*.next")); err != nil || len(left) > 0 {
						t.Errorf("%s: left %v, %v", point, left, err)
					}
				}
			}
			make()
			for _, tt := range need.Turn(t, []struct{ point, killed string }{
				{"rewind/prepared", "new"}, {"rewind/ended", "new"}, {"snapshot/frozen", "new"},
				{"rewind/begun", "old"}, {"rewind/attached", "old"}, {"rewind/moved", "old"}, {"rewind/pivoted", "old"}, {"rewind/renamed", "old"}, {"snapshot/saved", "old"},
			}) {
				change()
				b.arm(t, tt.point+"=kill")
				rewind := begin(t, b.Daemon, "rewind", "--json", "box", "old")
				b.died(t, tt.point)
				if r := rewind.end(t); r.Code == 0 {
					t.Errorf("%s: it was done: %s", tt.point, r.Stdout)
				} else {
					checkTyped(t, r)
				}
				has(tt.point+"=kill", tt.killed)
				change()
				b.arm(t, tt.point+"=error")
				finished := tt.point == "rewind/pivoted" // the daemon tries once more, and nothing is missing but a clean-up
				if r := b.Try("rewind", "--json", "box", "old"); (r.Code == 0) != finished {
					t.Errorf("%s=error: %+v", tt.point, r)
				}
				b.disarm(t)
				if tt.killed == "new" || finished || strings.HasPrefix(tt.point, "snapshot/") {
					has(tt.point+"=error", tt.killed)
					continue
				}
				b.Try("wait", "box") // what cannot be finished has ended
				b.Try("rm", "--force", "box")
				if r := b.Try("exec", "box", "--", "true"); r.Code == 0 {
					t.Errorf("%s=error: the sandbox goes on", tt.point)
				}
				b.Run(t, "snapshot", "rm", "old")
				make()
			}
			if r := b.Run(t, "rewind", "box", "old"); r.Stdout == "" {
				t.Error("nothing was said")
			}
			has("at last", "old")
			b.Run(t, "rm", "--force", "box")
			b.Run(t, "snapshot", "rm", "old")
			b.Run(t, "volume", "prune")
			if left, err := os.ReadDir(filepath.Join(b.Root, "disks")); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
			b.empty(t)
		})
	}
}
