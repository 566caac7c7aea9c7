package fault

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// A child never has more than its parent: neither where the daemon dies after the policy of
// the parent was narrowed and before that of the child, nor where the child's cannot be set
// (F02).
func TestBrokenChildPolicy(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	b := newBreakableIn(t, "", y.near.Enter()...)
	both, less := []string{"--allow", farPublic + "/32:80", "--allow", farPrivate + "/32:80,private"}, []string{"--allow", farPublic + "/32:80"}
	get := func(address string) string {
		return b.Try("exec", "child", "--", "wget", "-qO-", "-T", "10", "http://"+address+"/").Stdout
	}
	check := func(when, public, private string) {
		t.Helper()
		if a, b := get(farPublic), get(farPrivate); a != public || b != private {
			t.Errorf("%s the child gets %q and %q, want %q and %q", when, a, b, public, private)
		}
	}
	b.Run(t, append([]string{"create", "--name", "outer", "--nested", "-m", "256M", "--workspace", clientDir(t) + ":ro"}, both...)...)
	b.Run(t, "exec", "outer", "--", "/workspace/caisson", "create", "--name", "child", "--network", "allow", "-m", "64M", "--pids", "50", "--cpus", "0.5")
	check("at first", "the world", "the world")

	narrow := append(append([]string{"update", "--json"}, less...), "outer")
	b.arm(t, "child/policy=kill")
	update := begin(t, b.Daemon, narrow...)
	b.died(t, "child/policy")
	checkTyped(t, update.end(t))
	check("after the kill", "the world", "")
	b.Run(t, append(append([]string{"update"}, both...), "outer")...)
	check("widened again", "the world", "the world")

	b.arm(t, "child/policy=error")
	b.Run(t, narrow...)
	b.disarm(t)
	check("not held to its parent's policy,", "", "")
	if r := b.Try("exec", "outer", "--", "wget", "-qO-", "-T", "10", "http://"+farPublic+"/"); r.Stdout != "the world" {
		t.Errorf("the parent: %+v", r)
	}
	if log := b.Log(); !strings.Contains(log, "end a child whose policy cannot follow its parent's") {
		t.Errorf("nobody is told why it ended:\n%s", log)
	}
	for _, s := range list(t, b.Daemon) {
		if s.Name == "child" && s.State == "running" {
			t.Errorf("the child goes on: %+v", s)
		}
	}
	b.empty(t)
}

// clientDir is a directory with the client, as the workspace of a sandbox that makes others.
func clientDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, err := os.ReadFile(harness.Bin(t, "caisson"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "caisson"), program, 0o755)
	}
	for above := dir; err == nil && above != os.TempDir(); above = filepath.Dir(above) {
		err = os.Chmod(above, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
