package integration

import (
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// warmPools are the pools of a daemon by what they hold.
func warmPools(t *testing.T, d *harness.Daemon) (ready int, hits int64) {
	t.Helper()
	var st struct{ Pools []poolStats }
	d.Run(t, "info", "-o", "json").JSON(t, &st)
	for _, p := range st.Pools {
		ready, hits = ready+p.Ready, hits+p.Hits
	}
	return ready, hits
}

// Without any configuration the second request of a kind is served by a ready sandbox,
// whatever it adds that can be set when one is taken.
func TestWarmByDefault(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "# the default of warm: \n")
	if ready, _ := warmPools(t, d); ready != 0 {
		t.Errorf("%d are ready before anybody asked", ready)
	}
	hits := int64(0)
	for _, next := range []struct {
		args []string
		hit  bool
	}{
		{[]string{"run", "--", "true"}, false},
		{[]string{"run", "--", "true"}, true},
		{[]string{"run", "-m", "64M", "--cpus", "0.5", "-e", "A=b", "-p", "0:8080", "--workspace", workspace(t, 0, 0), "--", "true"}, true},
		{[]string{"run", "--allow", "example.com", "--", "true"}, false}, // a network of its own
		{[]string{"run", "--allow", "example.org:443", "--deny", "a.example", "--", "true"}, true},
		{[]string{"run", "--pids", "20", "--", "true"}, false},
		{[]string{"run", "--pids", "20", "--", "true"}, true},
		{[]string{"run", "--workspace", workspace(t, 0, 0) + ":cow", "--", "true"}, false}, // with a disk
		{[]string{"run", "--workspace", workspace(t, 0, 0) + ":cow", "--", "true"}, true},
	} {
		d.Run(t, next.args...)
		_, now := warmPools(t, d)
		if hit := now > hits; hit != next.hit {
			t.Errorf("%q: served by a ready sandbox: %v", next.args, hit)
		}
		hits = now
		await(t, "ready sandboxes for what was asked for", func() bool { return allReady(t, d) })
	}
	if ready, _ := warmPools(t, d); ready > 4 {
		t.Errorf("%d are ready, at most 4 are to be", ready)
	}
	if l := list(t, d); len(l) != 0 {
		t.Errorf("ready sandboxes are listed: %+v", l)
	}
}

// TestWarmCow: what copies on write is served by ready sandboxes, and is the same as in one that
// was made for its request. The host's directory stays as it is until the changes are applied.
func TestWarmCow(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "warm: 16\n")
	dir := workspace(t, 0, 0)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeTree(t, dir)
	before := treeText(t, dir)
	const look = "pwd; stat -c '%A %h %U:%G %s %N' * . ..; cat kept; df -k . | awk 'NR > 1 {print $2}'; echo a >made && cat made; grep -c . /proc/mounts; cut -d' ' -f2-4 /proc/mounts | grep -e workspace -e caisson/ | sed s/,uid=.*//; env | grep npm"
	for i, flags := range [][]string{
		{"--workspace", dir + ":cow"},
		{"--cache", "npm"},
		{"--cache", "npm", "--workspace", dir + ":cow", "--mount", "type=tmpfs,dst=/workspace/dir"},
		{"--disk", "64M", "--workspace", dir + ":ro"},
		{"--rootfs", "rw", "--workspace", dir + ":cow"},
	} {
		d.Run(t, append(append([]string{"run"}, flags...), "--", "true")...)
		await(t, "a ready sandbox", func() bool { return allReady(t, d) })
		_, hits := warmPools(t, d)
		show := func(name string, more ...string) string {
			box(t, d, name, append(more, flags...)...)
			return d.Try("exec", name, "--", "sh", "-c", look).Stdout
		}
		warm, cold := show("warm"), show("cold", "--open-files", strconv.Itoa(1000+i)) // of a kind of its own
		if _, now := warmPools(t, d); now != hits+1 {
			t.Errorf("%q: %d were served by a ready sandbox", flags, now-hits)
		}
		if warm != cold || !strings.Contains(warm, "/workspace\n") {
			t.Errorf("%q: warm:\n%s\ncold:\n%s", flags, warm, cold)
		}
		if w, c := postureOf(t, d, "warm"), postureOf(t, d, "cold"); len(w) < 20 || !maps.EqualFunc(w, c, func(string, string) bool { return true }) {
			t.Errorf("%q: posture:\n%v\nof a cold one:\n%v", flags, w, c)
		}
		d.Run(t, "rm", "--force", "cold", "warm")
	}
	if got := treeText(t, dir); got != before {
		t.Errorf("the host has\n%s, not\n%s", got, before)
	}
	await(t, "a ready sandbox", func() bool { return allReady(t, d) })
	_, hits := warmPools(t, d)
	box(t, d, "c", "--workspace", dir+":cow")
	if _, now := warmPools(t, d); now != hits+1 {
		t.Error("it was made anew")
	}
	d.Run(t, "exec", "c", "--", "sh", "-c", "echo more >>kept; echo deep >deep; rm -r gone")
	d.Kill(t)
	d.Launch(t)
	inspect(t, d, "c")
	if got := d.Run(t, "diff", "--name-only", "c").Stdout; got != "deep\ngone\nkept\n" {
		t.Errorf("diff: %s", got)
	}
	if got := treeText(t, dir); got != before {
		t.Errorf("the host has\n%s, not\n%s", got, before)
	}
	d.Run(t, "apply", "c")
	if got := treeText(t, dir); got == before || !strings.Contains(got, "deep") {
		t.Errorf("after the apply the host has\n%s", got)
	}
	d.Run(t, "rm", "--force", "c")
	d.Run(t, "volume", "prune")
}

// allReady reports whether every pool holds what it is to hold.
func allReady(t *testing.T, d *harness.Daemon) bool {
	t.Helper()
	var st struct{ Pools []poolStats }
	d.Run(t, "info", "-o", "json").JSON(t, &st)
	return len(st.Pools) == 1 && st.Pools[0].Ready == st.Pools[0].Target && st.Pools[0].Ready > 0 && st.Pools[0].Filling == 0
}

// TestCommandsAreNumberedWithoutGaps: neither what makes a sandbox ready nor work on its
// files takes the number of a command, also where a later daemon goes on with it.
func TestCommandsAreNumberedWithoutGaps(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "warm: 1\n")
	d.Run(t, "run", "--", "true")
	await(t, "a ready sandbox", func() bool { ready, _ := warmPools(t, d); return ready > 0 })
	d.Run(t, "create", "--name", "a")
	if _, hits := warmPools(t, d); hits == 0 {
		t.Fatal("it was made anew")
	}
	next := func(want string) {
		t.Helper()
		var r struct {
			ExecID string `json:"exec_id"`
		}
		if d.Run(t, "exec", "--json", "a", "--", "touch", "/tmp/f").JSONIn(t, "result", &r); r.ExecID != want {
			t.Errorf("command %s, want %s", r.ExecID, want)
		}
	}
	next("1")
	d.Run(t, "cp", "a:/tmp/f", t.TempDir())
	next("2")
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "cp", "a:/tmp/f", t.TempDir())
	next("3")
	d.Refused(t, "SBX-115", "wait", "--json", "a", "4") // there was none yet
	d.Run(t, "rm", "--force", "a")
}
