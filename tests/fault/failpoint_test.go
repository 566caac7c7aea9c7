package fault

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// breakable is a daemon that can be told to die, or to fail, at a point of its
// work.
type breakable struct {
	*harness.Daemon
	file  string
	flags []string
	stays string // the ID of a sandbox that is there all the time; "" is none
	// left is what its last death left on the host, by sandbox.
	left map[string][]string
}

func newBreakable(t *testing.T, settings string) *breakable {
	t.Helper()
	return newBreakableIn(t, settings)
}

// newBreakableIn starts one whose command line has wrap before it.
func newBreakableIn(t *testing.T, settings string, wrap ...string) *breakable {
	t.Helper()
	b := &breakable{Daemon: harness.New(t), file: filepath.Join(t.TempDir(), "failpoint"), flags: []string{"--bin-dir", os.Getenv("CAISSON_BIN_DIR")}}
	b.Program, b.Env, b.Settings = filepath.Join(failing, "caissond"), []string{"CAISSON_FAILPOINT=@" + b.file}, settings
	b.Wrap = wrap
	b.Launch(t, b.flags...)
	t.Cleanup(func() {
		b.disarm(t)
		b.Stop(t)
		b.CheckNothingLeft(t)
	})
	return b
}

func (b *breakable) arm(t *testing.T, what string) {
	t.Helper()
	if err := os.WriteFile(b.file+".new", []byte(what), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b.file+".new", b.file); err != nil {
		t.Fatal(err)
	}
}

func (b *breakable) disarm(t *testing.T) { b.arm(t, "") }

// died waits for the daemon's death at its point, and starts it again.
func (b *breakable) died(t *testing.T, point string) {
	t.Helper()
	select {
	case <-b.Ended():
	case <-time.After(patience):
		t.Fatalf("the daemon did not come to %s", point)
	}
	if code := b.ExitCode(); code != -1 {
		t.Fatalf("the daemon ended with code %d at %s\n%s", code, point, b.Log())
	}
	b.disarm(t)
	b.left = traces(t, b.Daemon)
	delete(b.left, b.stays)
	b.Launch(t, b.flags...)
}

// others lists the sandboxes but for the one that stays.
func (b *breakable) others(t *testing.T) []listed {
	t.Helper()
	return slices.DeleteFunc(list(t, b.Daemon), func(s listed) bool { return s.ID == b.stays })
}

// empty removes every sandbox but for the one that stays, and checks that nothing
// is left of them.
func (b *breakable) empty(t *testing.T) {
	t.Helper()
	for _, s := range b.others(t) {
		if r := b.Try("rm", "--force", s.ID); r.Code != 0 && !strings.Contains(r.Stderr, "SBX-107") { // a child goes with its parent
			t.Errorf("rm %s: %+v", s.ID, r)
		}
	}
	checkSound(t, b.Daemon)
}

// createKilled kills the daemon at a step of create. The sandbox of the repeated
// request runs.
func (b *breakable) createKilled(t *testing.T, step string, flags ...string) {
	t.Helper()
	args := append([]string{"create", "--json", "--name", "made", "--key", step}, flags...)
	b.arm(t, "create/"+step+"=kill")
	create := begin(t, b.Daemon, args...)
	b.died(t, "create/"+step)
	if len(b.left) != 1 {
		t.Errorf("the killed daemon left %v, want one sandbox", b.left)
	}
	if r := create.end(t); r.Code != 0 {
		checkTyped(t, r)
	}
	checkSound(t, b.Daemon)
	b.Run(t, args...)
	if l := b.others(t); len(l) != 1 || l[0].Name != "made" || l[0].State != "running" {
		t.Errorf("after the repeated request there are %+v", l)
	}
}

// createFailed lets a step of create fail. The sandbox of the repeated request runs.
func (b *breakable) createFailed(t *testing.T, step string, flags ...string) {
	t.Helper()
	args := append([]string{"create", "--json", "--name", "made", "--key", step}, flags...)
	b.arm(t, "create/"+step+"=error")
	if code := checkTyped(t, b.Try(args...)); code != "SBX-001" {
		t.Errorf("code %s, want that of the failpoint", code)
	}
	b.disarm(t)
	if l := b.others(t); len(l) != 0 {
		t.Errorf("the failed request left %+v", l)
	}
	checkSound(t, b.Daemon)
	b.Run(t, args...)
}

// removeKilled kills the daemon at a step of removing the sandbox doomed, which is
// gone or can be removed after that.
func (b *breakable) removeKilled(t *testing.T, step string) {
	t.Helper()
	b.arm(t, "remove/"+step+"=kill")
	rm := begin(t, b.Daemon, "rm", "--json", "--force", "doomed")
	b.died(t, "remove/"+step)
	if r := rm.end(t); r.Code != 0 {
		checkTyped(t, r)
	}
	checkSound(t, b.Daemon)
	if r := b.Try("rm", "--json", "--force", "doomed"); r.Code != 0 {
		if code := checkTyped(t, r); code != "SBX-107" {
			t.Errorf("the repeated rm: %s", code)
		}
	}
}

// removeFailed lets a step of removing the sandbox doomed fail. Cleanup removes what
// that leaves.
func (b *breakable) removeFailed(t *testing.T, step string) {
	t.Helper()
	b.arm(t, "remove/"+step+"=error")
	checkTyped(t, b.Try("rm", "--json", "--force", "doomed"))
	b.disarm(t)
	b.Run(t, "cleanup")
	if l := b.others(t); len(l) != 0 {
		t.Errorf("there are still %+v", l)
	}
	checkSound(t, b.Daemon)
}

// withNested lets sandboxes of the profile team have children.
const withNested = "ids: {blocks: 64}\nprofiles: {team: {nested: {}}}\n"

// unremoved are the stages of a sandbox's creation of which nothing is left to remove.
var unremoved = strings.Fields("limits start hello posture")

// stages are those of a sandbox's creation, as the daemon itself tells them.
func (b *breakable) stages(t *testing.T) (names []string) {
	t.Helper()
	var r struct{ Stages []struct{ Name string } }
	b.Run(t, "run", "--json", "--trace", "--", "true").JSONIn(t, "result", &r)
	b.AwaitNoSandbox(t)
	for _, s := range r.Stages {
		names = append(names, s.Name)
		if s.Name == "posture" {
			return names
		}
	}
	t.Fatalf("no posture among %v", names)
	return nil
}

// createPoints are the steps of a creation, and removePoints those of a removal.
func (b *breakable) createPoints(t *testing.T) []string { return append(b.stages(t), "record") }

func (b *breakable) removePoints(t *testing.T) []string {
	points := slices.DeleteFunc(b.stages(t), func(name string) bool { return slices.Contains(unremoved, name) })
	slices.Reverse(points)
	return points
}

// mounted are the flags of a sandbox that may have children, with a network, which is opened
// beside the stages from netns to egress, with a port, a disk, and a mount of each kind.
func mounted(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "nested"), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{
		"--profile", "team", "--nested", "--allow", "web.example", "-p", "0:8080", "--disk", "64M", "--workspace", dir, "--mount", "type=bind,src=" + dir + "/nested,dst=/data/nested,ro",
		"--mount", "type=bind,src=" + dir + ",dst=/data", "--mount", "type=volume,src=kept,dst=/kept", "--mount", "type=tmpfs,dst=/scratch",
		"--mount", "type=tmpfs,dst=/home/caisson/cache", // so that it has a home of the image
	}
}

// A daemon that is killed at any step of create leaves nothing that cannot be
// seen and removed, and the request can be repeated (F02, F10).
func TestKilledInCreate(t *testing.T) {
	b := newBreakable(t, withNested)
	for _, step := range need.Turn(t, b.createPoints(t)) {
		t.Run(step, func(t *testing.T) {
			b.createKilled(t, step, mounted(t)...)
			b.empty(t)
		})
	}
}

// A step of create that fails is told with a code, and leaves nothing behind
// (F23).
func TestFailureInCreate(t *testing.T) {
	t.Parallel() // beside tests that wait
	b := newBreakable(t, withNested)
	for _, step := range need.Turn(t, b.createPoints(t)) {
		t.Run(step, func(t *testing.T) {
			b.createFailed(t, step, mounted(t)...)
			b.empty(t)
		})
	}
}

// Removing goes on after a kill at any of its steps: the sandbox is gone or can
// be removed (F04).
func TestKilledInRemove(t *testing.T) {
	b := newBreakable(t, withNested)
	for _, step := range need.Turn(t, b.removePoints(t)) {
		t.Run(step, func(t *testing.T) {
			b.Run(t, slices.Concat([]string{"create", "--name", "doomed"}, mounted(t))...)
			b.Run(t, "exec", "-d", "doomed", "--", "sleep", "1000")
			b.removeKilled(t, step)
			b.empty(t)
		})
	}
}

// A step of removing that fails is told, and what it left is removed by cleanup.
func TestFailureInRemove(t *testing.T) {
	b := newBreakable(t, withNested)
	for _, step := range need.Turn(t, b.removePoints(t)) {
		t.Run(step, func(t *testing.T) {
			b.Run(t, slices.Concat([]string{"create", "--name", "doomed"}, mounted(t))...)
			b.removeFailed(t, step)
		})
	}
}
