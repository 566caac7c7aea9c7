package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// TestRewind: a live sandbox has the files of the snapshot afterwards, also those of a snapshot of
// another sandbox, whose ids are others. Its ID, ports, policy, mounts and limits are as before, also
// after the daemon was killed, and it can be put back again.
//
//caisson:kernel
func TestRewind(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	dir := workspace(t, 0, 0)
	for _, tt := range []struct {
		kind  string
		flags []string
	}{
		{"root", []string{"--profile", "dev", "--user", "root", "--mount", "type=volume,src=data,dst=/data"}},
		{"disk", []string{"--disk", "64M", "--mount", "type=tmpfs,dst=/scratch"}},
		{"workspace", []string{"--profile", "dev", "--user", "root", "--workspace", dir + ":ro"}},
	} {
		create := func(name string, more ...string) {
			d.Run(t, slices.Concat([]string{"create", "--name", name, "-e", "WHO=me", "-m", "128M"}, tt.flags, more)...)
		}
		create("a", "--publish", "0:8080", "--allow", "a.example")
		create("other")
		const write = "echo $0 >/tmp/t; echo $0 >/dev/shm/t; for f in /workspace/f /usr/f /data/f /scratch/f; do (echo $0 >$f) 2>/dev/null; done; true"
		const look = "cat /workspace/f /usr/f /data/f /scratch/f 2>/dev/null; ls -A /tmp /var/tmp /dev/shm /run | tr '\n' ' '; echo $WHO; touch /tmp/x /dev/shm/x && rm /tmp/x /dev/shm/x && pwd; grep -c . /proc/mounts"
		d.Run(t, "exec", "a", "--", "sh", "-c", write, "one")
		d.Run(t, "exec", "other", "--", "sh", "-c", write, "other")
		d.Run(t, "snapshot", "create", "a", "--name", "one")
		d.Run(t, "snapshot", "create", "other", "--name", "other")
		before := rewindView(t, d)
		mounts := strings.TrimSpace(d.Run(t, "exec", "a", "--", "grep", "-c", ".", "/proc/mounts").Stdout)
		wants := func(when, who, data string) {
			t.Helper()
			want := "/dev/shm: /run: caisson /tmp: /var/tmp: me\n/workspace\n" + mounts + "\n"
			switch tt.kind {
			case "root":
				want = who + "\n" + who + "\n" + data + "\n" + want
			case "disk":
				want = who + "\n" + want
			case "workspace":
				want = who + "\n" + want
			}
			got := d.Run(t, "exec", "a", "--", "sh", "-c", look).Stdout
			if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
				t.Errorf("%s, %s: it has\n%swant\n%s", tt.kind, when, got, want)
			}
			if after := rewindView(t, d); after != before {
				t.Errorf("%s, %s: it is\n%s\nbefore\n%s", tt.kind, when, after, before)
			}
		}
		for _, who := range []string{"one", "other"} {
			d.Run(t, "exec", "a", "--", "sh", "-c", write, "changed")
			main := strings.TrimSpace(d.Run(t, "exec", "-d", "a", "--", "sh", "-c", "sleep 1000 & sleep 1000").Stdout)
			var done struct {
				Execs     []string
				Processes int
			}
			if err := json.Unmarshal([]byte(d.Run(t, "rewind", "-o", "json", "a", who).Stdout), &done); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(done.Execs, []string{main}) || done.Processes != 2 && done.Processes != 3 {
				t.Errorf("%s: ended %+v, the command was %s", tt.kind, done, main)
			}
			wants("put back to "+who, who, "changed")
			if out := d.Run(t, "events", "--json", "--filter", "type=sandbox.rewound").Stdout; !strings.Contains(out, `"snapshot":"`+who+`"`) {
				t.Errorf("events: %s", out)
			}
		}
		d.Kill(t)
		d.Launch(t)
		wants("after a restart of the daemon", "other", "changed")
		d.Run(t, "snapshot", "create", "a", "--name", "again")
		d.Run(t, "exec", "a", "--", "sh", "-c", write, "later")
		d.Run(t, "rewind", "a", "again")
		wants("put back to a snapshot of what was put back", "other", "later")
		d.Run(t, "rm", "--force", "a", "other")
		d.Run(t, "snapshot", "rm", "one", "other", "again")
	}
	d.Run(t, "volume", "rm", "data")
	wantNoDisks(t, d)
}

// rewindView is what must not change in the sandbox a.
func rewindView(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	var s struct {
		Sandbox struct {
			ID, Name, State, Network string
			Ports, Mounts, Workspace any
		}
		Limits, Allow, Env any
	}
	if err := json.Unmarshal([]byte(d.Run(t, "inspect", "a").Stdout), &s); err != nil || s.Sandbox.ID == "" {
		t.Fatal(s, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRewindTime: going back costs about as much as a command.
func TestRewindTime(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root")
	d.Run(t, "exec", "a", "--", "sh", "-c", "for i in $(seq 100); do echo $i >/usr/f$i; done")
	d.Run(t, "snapshot", "create", "a", "--name", "one")
	var took []time.Duration
	for range 21 {
		d.Run(t, "exec", "-d", "a", "--", "sh", "-c", "rm /usr/f*; sleep 1000")
		began := time.Now()
		d.Run(t, "rewind", "a", "one")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("rewind: p50 %s, max %s", took[len(took)/2], took[len(took)-1])
	if p50 := took[len(took)/2]; p50 > 500*time.Millisecond { // ten times the figure: other tests run beside
		t.Errorf("a rewind takes %s", p50)
	}
	d.Run(t, "rm", "--force", "a")
	d.Run(t, "snapshot", "rm", "one")
}

// TestRewindRefused: what is refused ends nothing and changes nothing.
func TestRewindRefused(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "image", "build", "second", recipe(t, "FROM base\nLABEL a=b\n", nil))
	d.Run(t, "create", "--name", "a", "--profile", "dev")
	d.Run(t, "create", "--name", "none")
	d.Run(t, "create", "--name", "disk", "--disk", "64M")
	d.Run(t, "create", "--name", "small", "--disk", "32M")
	d.Run(t, "create", "--name", "ended", "--disk", "64M")
	d.Run(t, "create", "--name", "cow", "--disk", "64M", "--workspace", workspace(t, 0, 0)+":cow")
	d.Run(t, "create", "--name", "paused", "--disk", "64M")
	d.Run(t, "run", "-d", "--name", "command", "--disk", "64M", "--", "sleep", "1000")
	d.Run(t, "create", "--name", "second", "--profile", "dev", "--image", "second")
	d.Run(t, "exec", "-d", "a", "--", "sleep", "1000")
	d.Run(t, "exec", "a", "--", "sh", "-c", "echo kept >/workspace/f")
	for _, name := range []string{"a", "disk", "second"} {
		d.Run(t, "snapshot", "create", name, "--name", name)
	}
	d.Run(t, "stop", "ended")
	d.Run(t, "pause", "paused")
	for _, tt := range [][]string{
		{"SBX-107", "nobody", "a"}, {"SBX-235", "a", "nothing"}, {"SBX-101", "a", ""}, {"SBX-108", "ended", "disk"}, {"SBX-114", "paused", "disk"},
		{"SBX-237", "none", "disk"}, {"SBX-238", "cow", "disk"}, {"SBX-108", "command", "disk"}, {"SBX-246", "a", "disk"}, {"SBX-246", "small", "disk"},
		{"SBX-236", "a", "second"}, {"SBX-236", "second", "a"},
	} {
		d.Refused(t, tt[0], "rewind", "-o", "json", tt[1], tt[2])
	}
	user := d.User(t, ann)
	user.Refused(t, "SBX-235", "rewind", "-o", "json", "a", "a")
	own := strings.TrimSpace(user.Run(t, "create", "--name", "own", "--profile", "dev").Stdout)
	user.Refused(t, "SBX-235", "rewind", "-o", "json", "own", "0+a")
	user.Run(t, "snapshot", "create", "own", "--name", "own")
	user.Refused(t, "SBX-107", "rewind", "-o", "json", "a", "own")
	user.Run(t, "rewind", "own", "own")
	d.Refused(t, "SBX-805", "rewind", "-o", "json", own, "a")
	if out := d.Run(t, "exec", "a", "--", "sh", "-c", "cat /workspace/f; ps | grep -c sleep.1000").Stdout; !strings.HasPrefix(out, "kept\n") || out == "kept\n0\n" {
		t.Errorf("the refused one has %q", out)
	}
	d.Run(t, "rewind", "a", "a") // nothing of the refused ones is in the way
	d.Run(t, "resume", "paused")
	d.Run(t, "rewind", "paused", "disk")
	d.Run(t, "exec", "paused", "--", "sh", "-c", "echo kept >/workspace/f")
	d.Kill(t)
	d.Config = strings.Replace(devProfile, "disk: 64M", "disk: 64M, disk_reserve: 1000T", 1)
	d.Launch(t)
	d.Refused(t, "SBX-234", "rewind", "-o", "json", "paused", "disk") // the host has no room
	d.Run(t, "exec", "paused", "--", "cat", "/workspace/f")
}

// TestRewindWithCaches: caches, and directories of snapshots, are there afterwards as when the sandbox
// was made, without what it wrote to them since. It can write to them, and a cache still gets what is
// written at the end.
//
//caisson:kernel
func TestRewindWithCaches(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {disk: 64M}\nprofiles: {dev: {seccomp: compat, rootfs: rw, root_user: setup, merge_caches: true}}\n")
	d.Run(t, "run", "--profile", "dev", "--cache", "c=/mine", "--", "sh", "-c", "echo seed >/mine/seed")
	d.Run(t, "create", "--name", "deps", "--disk", "64M")
	d.Run(t, "exec", "deps", "--", "sh", "-c", "mkdir deps && echo dep >deps/dep")
	d.Run(t, "snapshot", "create", "deps", "--name", "deps", "--path", "/workspace/deps")
	const look = "cat /mine/* /opt/deps/* /late/*; cat /workspace/f; for dir in /mine /opt/deps /late; do touch $dir/new && rm $dir/new; done; grep -c ' overlay ' /proc/mounts"
	for _, flags := range [][]string{{"--profile", "dev", "--user", "root"}, {"--disk", "64M", "--mount", "type=tmpfs,dst=/late"}} {
		d.Run(t, slices.Concat([]string{"create", "--name", "a", "--cache", "c=/mine", "--mount", "type=snapshot,src=deps,dst=/opt/deps"}, flags)...)
		late := flags[0] == "--profile"
		if late {
			d.Run(t, "exec", "a", "--", "mkdir", "/late")
			d.Run(t, "attach-snapshot", "a", "deps:/late")
		}
		d.Run(t, "exec", "a", "--", "sh", "-c", "echo one >/workspace/f")
		d.Run(t, "snapshot", "create", "a", "--name", "one")
		want := d.Run(t, "exec", "a", "--", "sh", "-c", look).Stdout
		if !strings.HasPrefix(want, "seed\ndep\n") || late != strings.HasPrefix(want, "seed\ndep\ndep\none\n") {
			t.Errorf("it begins with %q", want)
		}
		has := func(when string) {
			t.Helper()
			if got := d.Run(t, "exec", "a", "--", "sh", "-c", look).Stdout; got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
			inspect(t, d, "a") // with its posture
		}
		for range 2 {
			d.Run(t, "exec", "a", "--", "sh", "-c", "for f in /mine/g /opt/deps/g /late/g /workspace/f; do echo two >$f; done; rm /mine/seed /opt/deps/dep")
			d.Run(t, "rewind", "a", "one")
			has("put back")
		}
		d.Kill(t)
		d.Launch(t)
		has("after a restart of the daemon")
		d.Run(t, "exec", "a", "--", "sh", "-c", "echo two >/mine/g")
		d.Run(t, "rewind", "a", "one")
		has("put back by another daemon")
		d.Run(t, "rm", "--force", "a")
		d.Run(t, "snapshot", "rm", "one")
	}
	d.Run(t, "rm", "--force", "deps")
	d.Run(t, "snapshot", "rm", "deps")
	d.Run(t, "volume", "prune")
	wantNoDisks(t, d)
}
