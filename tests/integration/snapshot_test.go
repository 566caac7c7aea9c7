package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

const devProfile = "sandboxes: {disk: 64M}\nprofiles: {dev: {seccomp: compat, rootfs: rw, root_user: setup}}\npeers: [{uids: [54321], volumes: true, limits: {disk: 64M}, profiles: [dev]}]\n"

// TestSnapshot: what was written to the root and to /workspace is in each sandbox from the
// snapshot, with its owners, modes and removed files, also in one whose ids are others, after
// the daemon was killed, and of a snapshot of such a sandbox. What comes after the snapshot is
// in neither.
func TestSnapshot(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root", "-e", "WHO=a", "-l", "team=blue", "--allow", "a.example")
	const change = "mkdir /usr/new && echo installed >/usr/new/f && chown -R 1000:1000 /usr/new && chmod 750 /usr/new && rm /etc/group && mv /home /home2 && ln -s /usr/new/f /link && echo w >/workspace/w"
	d.Run(t, "exec", "a", "--", "sh", "-c", change)
	if got := d.Run(t, "snapshot", "create", "a", "--name", "one").Stdout; got != "one\n" {
		t.Errorf("printed %q", got)
	}
	d.Run(t, "exec", "a", "--", "sh", "-c", "echo later >/usr/new/f; touch /later")
	const look = "cat /link /workspace/w; stat -c '%u:%g %a' /usr/new /usr/new/f; ls -d /etc/group /home /later 2>/dev/null; ls -d /home2; echo $WHO; touch /usr/new/g && echo written"
	const want = "installed\nw\n1000:1000 750\n1000:1000 644\n/home2\na\nwritten\n"
	d.Run(t, "create", "--name", "b", "--from", "one")
	if got := d.Run(t, "exec", "b", "--", "sh", "-c", look).Stdout; got != want {
		t.Errorf("in a sandbox from it:\n%s\nwant:\n%s", got, want)
	}
	if got := d.Run(t, "exec", "a", "--", "sh", "-c", "cat /usr/new/f; ls /usr/new").Stdout; got != "later\nf\n" {
		t.Errorf("in the first one afterwards: %q", got)
	}
	d.Kill(t)
	d.Launch(t)
	if got := d.Run(t, "exec", "b", "--", "ls", "/usr/new").Stdout; got != "f\ng\n" {
		t.Errorf("after a restart: %q", got)
	}
	d.Run(t, "pause", "b")
	d.Run(t, "snapshot", "create", "b", "--name", "two") // of a paused one
	d.Run(t, "rm", "--force", "a", "b")
	d.Run(t, "snapshot", "rm", "one")
	if got := d.Run(t, "run", "--from", "two", "-e", "WHO=c", "--", "sh", "-c", look).Stdout; got != strings.Replace(want, "\na\n", "\nc\n", 1) {
		t.Errorf("of the second generation:\n%s", got)
	}
	wantSettings(t, d)
	if r := d.Try("snapshot", "ls"); !strings.Contains(r.Stdout, "two") || strings.Contains(r.Stdout, "one ") {
		t.Errorf("listed:\n%s", r.Stdout)
	}
	d.Run(t, "snapshot", "rm", "two")
	wantNoDisks(t, d)
	if left, err := os.ReadDir(filepath.Join(d.Root, "snapshots")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// wantSettings checks what a sandbox from the snapshot "two" has of the one that it is of.
func wantSettings(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Run(t, "create", "--name", "c", "--from", "two", "-l", "task=x")
	var s []struct {
		Profile, Network, Image string
		Labels                  map[string]string
	}
	if err := json.Unmarshal([]byte(d.Run(t, "ls", "-o", "json").Stdout), &s); err != nil || len(s) != 1 {
		t.Fatal(s, err)
	}
	if s := s[0]; s.Profile != "dev" || s.Network != "allow" || s.Labels["team"] != "blue" || s.Labels["task"] != "x" {
		t.Errorf("a sandbox from it: %+v", s)
	}
	d.Run(t, "rm", "--force", "c")
}

// TestSnapshotRefused: what cannot be kept, found or begun with is refused, and leaves nothing.
func TestSnapshotRefused(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "none")
	d.Run(t, "create", "--name", "a", "--profile", "dev")
	d.Run(t, "snapshot", "create", "a", "--name", "one")
	for code, tries := range map[string][][]string{
		"SBX-101": {{"snapshot", "create", "-o", "json", "a", "--name", "a/b"}, {"create", "-o", "json", "--from", "one", "--rootfs", "ro"}, {"fork", "-o", "json", "-n", "65", "a"}, {"fork", "-o", "json", "-n", "0", "a"}},
		"SBX-102": {{"create", "-o", "json", "--from", "one", "--disk", "32M"}, {"create", "-o", "json", "--from", "one", "--disk-inodes", "300"}},
		"SBX-106": {{"snapshot", "create", "-o", "json", "a", "--name", "one"}},
		"SBX-107": {{"snapshot", "create", "-o", "json", "nobody"}, {"fork", "-o", "json", "nobody"}},
		"SBX-235": {{"snapshot", "rm", "-o", "json", "two"}, {"snapshot", "inspect", "-o", "json", "two"}, {"create", "-o", "json", "--from", "two"}},
		"SBX-237": {{"snapshot", "create", "-o", "json", "none"}, {"fork", "-o", "json", "none"}},
	} {
		for _, args := range tries {
			d.Refused(t, code, args...)
		}
	}
	user := d.User(t, ann)
	user.Refused(t, "SBX-235", "create", "-o", "json", "--from", "one")
	user.Refused(t, "SBX-235", "snapshot", "rm", "-o", "json", "0+one")
	user.Run(t, "create", "--name", "own", "--profile", "dev")
	user.Run(t, "snapshot", "create", "own", "--name", "one")
	if got := user.Run(t, "snapshot", "ls", "-o", "json").Stdout; strings.Count(got, `"name"`) != 1 {
		t.Errorf("a user sees %s", got)
	}
	d.Run(t, "stop", "a")
	d.Refused(t, "SBX-108", "snapshot", "create", "-o", "json", "a")
	d.Run(t, "rm", "--force", "a", "none")
	user.Run(t, "rm", "--force", "own")
	if r := d.Try("image", "rm", "base"); r.Code == 0 || !strings.Contains(r.Stderr, `is needed by snapshot 54321+one, snapshot one`) && !strings.Contains(r.Stderr, `is needed by snapshot one, snapshot 54321+one`) {
		t.Errorf("the image of snapshots: %d, %s", r.Code, r.Stderr)
	}
	d.Run(t, "snapshot", "rm", "one", "54321+one")
	wantNoDisks(t, d)
}

// TestFork: forks have the files of one sandbox, and write apart from it and each other.
func TestFork(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root")
	d.Run(t, "exec", "a", "--", "sh", "-c", "echo base >/f; (while :; do echo x >>/busy; done) >/dev/null 2>&1 &")
	ids := strings.Fields(d.Run(t, "fork", "-n", "4", "a").Stdout)
	if len(ids) != 4 {
		t.Fatalf("forks: %q", ids)
	}
	for _, id := range ids {
		if got := d.Run(t, "exec", id, "--", "sh", "-c", "cat /f; echo "+id+" >>/f; cat /f").Stdout; got != "base\nbase\n"+id+"\n" {
			t.Errorf("fork %s: %q", id, got)
		}
	}
	if got := d.Run(t, "exec", "a", "--", "cat", "/f").Stdout; got != "base\n" {
		t.Errorf("the first one: %q", got)
	}
	if got := d.Run(t, "snapshot", "ls", "-o", "json").Stdout; strings.TrimSpace(got) != "[]" {
		t.Errorf("left: %s", got)
	}
	d.Run(t, append([]string{"rm", "--force", "a"}, ids...)...)
	wantNoDisks(t, d)
}

// TestForkFromPool: forks are sandboxes of the pool where there are some of their kind, with the files
// and settings of the one that was forked.
func TestForkFromPool(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	for name, profile := range map[string]string{"root": "rootfs: rw, disk: 32M", "disk": "disk: 32M"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.StartWith(t, "profiles: {kind: {"+profile+"}}\npools: [{profile: kind, size: 3}]\n")
			d.Run(t, "create", "--name", "a", "--profile", "kind", "--env", "COLOUR=blue", "--memory", "300M")
			d.Run(t, "exec", "a", "--", "sh", "-c", "echo base >/workspace/f; echo base >$HOME/f; echo gone >/tmp/f")
			awaitReady(t, d, 3)
			before := poolOf(t, d)
			ids := strings.Fields(d.Run(t, "fork", "-n", "3", "a").Stdout)
			if after := poolOf(t, d); len(ids) != 3 || after.Hits != before.Hits+3 {
				t.Errorf("forks %q, hits of the pool %d, then %d", ids, before.Hits, after.Hits)
			}
			for _, id := range ids {
				const look = `cat /workspace/f; [ ! -e $HOME/f ] || cat $HOME/f; ls /tmp; echo $COLOUR; echo $0 >>/workspace/f; cat /workspace/f; df /workspace | wc -l`
				want := "base\nblue\nbase\n" + id + "\n2\n"
				if name == "root" {
					want = "base\n" + want
				}
				if got := d.Run(t, "exec", id, "--", "sh", "-c", look, id).Stdout; got != want {
					t.Errorf("fork %s: %q, want %q", id, got, want)
				}
				var detail struct {
					Limits struct {
						Memory int64 `json:"memory_bytes"`
					}
				}
				d.Run(t, "inspect", id).JSON(t, &detail)
				if detail.Limits.Memory != 300<<20 {
					t.Errorf("fork %s: %d bytes of memory", id, detail.Limits.Memory)
				}
			}
			d.Kill(t)
			d.Launch(t)
			if got := d.Run(t, "exec", ids[0], "--", "cat", "/workspace/f").Stdout; got != "base\n"+ids[0]+"\n" {
				t.Errorf("after a restart of the daemon: %q", got)
			}
			d.Run(t, "snapshot", "create", ids[0], "--name", "again")
			if got := d.Run(t, "exec", strings.TrimSpace(d.Run(t, "create", "--from", "again").Stdout), "--", "cat", "/workspace/f").Stdout; got != "base\n"+ids[0]+"\n" {
				t.Errorf("from a snapshot of a fork: %q", got)
			}
		})
	}
}

// TestSnapshotOnEnd: whatever ends a sandbox, what it wrote is in the snapshot that was asked
// for: its own end, out of memory, its time, a stop, a removal, and a daemon that was killed.
func TestSnapshotOnEnd(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	ask := func(name string, args ...string) []string {
		return append([]string{"--profile", "dev", "--user", "root", "--disk", "32M", "--snapshot-on-end", name}, args...)
	}
	d.Try(append(append([]string{"run"}, ask("failed")...), "--", "sh", "-c", "echo failed >/f; exit 3")...)
	d.Try(append(append([]string{"run"}, ask("memory", "-m", "64M")...), "--", "sh", "-c", "echo memory >/f; tail /dev/zero")...)
	for _, end := range []string{"stop", "rm", "ttl", "killed"} {
		args := ask(end, "--name", end)
		if end == "ttl" {
			args = append(args, "--ttl", "2s")
		}
		d.Run(t, append([]string{"create"}, args...)...)
		d.Run(t, "exec", end, "--", "sh", "-c", "echo "+end+" >/f")
	}
	d.Run(t, "stop", "stop")
	d.Run(t, "rm", "--force", "rm")
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "rm", "--force", "killed")
	await(t, "the end of its time", func() bool { return d.Try("snapshot", "inspect", "ttl").Code == 0 })
	for _, name := range []string{"failed", "memory", "stop", "rm", "ttl", "killed"} {
		if got := d.Run(t, "run", "--from", name, "--disk", "32M", "-m", "128M", "--", "cat", "/f").Stdout; got != name+"\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	d.Run(t, append(append([]string{"run"}, ask("failed")...), "--", "true")...) // a name that is taken
	if got := d.Run(t, "snapshot", "ls").Stdout; strings.Count(got, "failed-") != 1 {
		t.Errorf("listed:\n%s", got)
	}
	d.Refused(t, "SBX-237", "run", "-o", "json", "--snapshot-on-end", "x", "--", "true")
	d.Refused(t, "SBX-101", append(append([]string{"run", "-o", "json"}, ask("a/b")...), "--", "true")...)
	d.Run(t, "rm", "--force", "stop")
	for line := range strings.Lines(d.Run(t, "snapshot", "ls").Stdout) {
		if name := strings.Fields(line)[0]; name != "NAME" {
			d.Run(t, "snapshot", "rm", name)
		}
	}
	wantNoDisks(t, d)
}

// TestSnapshotRetention: snapshots that nobody named go when there are more than the configuration
// says, with an event for each. Named ones stay, and one that a sandbox began with.
func TestSnapshotRetention(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile+"snapshots: {kept: 2}\n")
	d.Run(t, "create", "--name", "a", "--disk", "32M")
	make := func(more ...string) string {
		return strings.TrimSpace(d.Run(t, append([]string{"snapshot", "create", "a"}, more...)...).Stdout)
	}
	make("--name", "named")
	used := make()
	d.Run(t, "create", "--name", "b", "--from", used)
	gone, second, third := make(), make(), make()
	if list := d.Run(t, "snapshot", "ls").Stdout; strings.Contains(list, gone) || !strings.Contains(list, "named") || !strings.Contains(list, used) || !strings.Contains(list, second) || !strings.Contains(list, third) {
		t.Errorf("%s is to be gone:\n%s", gone, list)
	}
	if out := d.Run(t, "events", "--json", "--filter", "type=snapshot.removed").Stdout; strings.Count(out, "expired") != 1 || !strings.Contains(out, gone) {
		t.Errorf("events: %s", out)
	}
	d.Run(t, "restart", "b") // its snapshot is there
	d.Run(t, "rm", "--force", "a", "b")
	d.Run(t, "snapshot", "rm", "named", used, second, third)
}
