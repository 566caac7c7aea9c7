package integration

import (
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
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
	} {
		d.Run(t, next.args...)
		_, now := warmPools(t, d)
		if hit := now > hits; hit != next.hit {
			t.Errorf("%q: served by a ready sandbox: %v", next.args, hit)
		}
		hits = now
		await(t, "ready sandboxes for what was asked for", func() bool {
			var st struct{ Pools []poolStats }
			d.Run(t, "info", "-o", "json").JSON(t, &st)
			return len(st.Pools) == 1 && st.Pools[0].Ready == st.Pools[0].Target && st.Pools[0].Ready > 0 && st.Pools[0].Filling == 0
		})
	}
	if ready, _ := warmPools(t, d); ready > 4 {
		t.Errorf("%d are ready, at most 4 are to be", ready)
	}
	if l := list(t, d); len(l) != 0 {
		t.Errorf("ready sandboxes are listed: %+v", l)
	}
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
