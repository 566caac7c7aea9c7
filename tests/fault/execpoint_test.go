package fault

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// counts prints numbers, and ends with a code of its own.
const counts = "i=0; while [ $i -lt 20 ]; do echo $i; i=$((i+1)); done; exit 3"

var counted = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n"

// Once PID 1 has a command, the death of the daemon costs neither its output
// nor its exit code, whatever the daemon was doing (F03).
//
//caisson:smoke
func TestKilledInExec(t *testing.T) {
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "box")
	for _, point := range []string{"exec/started", "exec/settled", "exec/kept"} {
		t.Run(point, func(t *testing.T) {
			b.arm(t, point+"=kill")
			// The client is held back until the daemon is there again: its
			// patience is ten seconds, which a busy machine can take.
			exec := begin(t, b.Daemon, "exec", "--json", "box", "--", "sh", "-c", counts)
			b.died(t, point)
			if r := exec.end(t); r.Code != 3 {
				checkTyped(t, r)
			}
			checkSound(t, b.Daemon)
			last := lastExec(t, b, "box", 0)
			if r := b.Try("wait", "box", last); r.Code != 3 {
				t.Errorf("wait: %+v", r)
			}
			if out := b.Run(t, "logs", "box", "--exec", last).Stdout; out != counted {
				t.Errorf("the output that was kept is %q", out)
			}
			if r := result(t, b, "box", last); r.ExitCode != 3 || r.Reason != "exited" {
				t.Errorf("the result that was kept is %+v", r)
			}
		})
	}
	b.empty(t)
}

// A command that PID 1 has not got when the daemon dies never runs, and says so
// (F03).
func TestKilledBeforeExec(t *testing.T) {
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "box")
	for _, point := range []string{"exec/recorded", "exec/placed"} {
		t.Run(point, func(t *testing.T) {
			b.arm(t, point+"=kill")
			exec := begin(t, b.Daemon, "exec", "--json", "--pids", "20", "box", "--", "touch", "/tmp/ran")
			b.died(t, point)
			checkTyped(t, exec.end(t))
			checkSound(t, b.Daemon)
			if r := b.Try("exec", "box", "--", "test", "-e", "/tmp/ran"); r.Code != 1 {
				t.Errorf("the command ran: %+v", r)
			}
			await(t, "end of the command's cgroup", func() bool {
				return len(glob(t, "/sys/fs/cgroup/*/"+b.Instance()+"/*/*exec-*")) == 0
			})
		})
	}
	b.empty(t)
}

// A start that fails is told with a code and leaves no command behind.
func TestFailureInExec(t *testing.T) {
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "box")
	for _, point := range []string{"exec/recorded", "exec/placed"} {
		b.arm(t, point+"=error")
		checkTyped(t, b.Try("exec", "--json", "--pids", "20", "box", "--", "touch", "/tmp/ran"))
		b.disarm(t)
		if r := b.Try("exec", "box", "--", "test", "-e", "/tmp/ran"); r.Code != 1 {
			t.Errorf("%s: the command ran: %+v", point, r)
		}
		await(t, "end of the command's cgroup", func() bool { return len(glob(t, "/sys/fs/cgroup/*/"+b.Instance()+"/*/*exec-*")) == 0 })
	}
	b.empty(t)
}

// lastExec waits for the sandbox to have a command after the first n, and
// returns the ID of the last that is no probe of checkWorks.
func lastExec(t *testing.T, b *breakable, ref string, n int) string {
	t.Helper()
	var last string
	await(t, "command", func() bool {
		var execs []struct {
			ID   string
			Args []string
		}
		b.Run(t, "ps", ref, "-o", "json").JSON(t, &execs)
		for _, e := range execs[min(n, len(execs)):] {
			if strings.Contains(strings.Join(e.Args, " "), counts) {
				last = e.ID
			}
		}
		return last != ""
	})
	return last
}

// kept is the result of a command that ended.
type kept struct {
	ExitCode int    `json:"exit_code"`
	Reason   string `json:"reason"`
}

func result(t *testing.T, b *breakable, ref, exec string) kept {
	t.Helper()
	var execs []struct {
		ID     string
		Result kept
	}
	b.Run(t, "ps", ref, "-o", "json").JSON(t, &execs)
	for _, e := range execs {
		if e.ID == exec {
			return e.Result
		}
	}
	t.Fatalf("no command %s", exec)
	return kept{}
}

const pooled = "ids: {blocks: 64}\npools: [{size: 2}]\n"

// ready waits for a full pool.
func ready(t *testing.T, d *harness.Daemon) {
	t.Helper()
	await(t, "full pool", func() bool { return poolReady(t, d) == 2 })
}

func poolReady(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	var stats struct{ Pools []struct{ Ready int } }
	d.Run(t, "info", "-o", "json").JSON(t, &stats)
	return stats.Pools[0].Ready
}

// assignPoints are the steps that make a ready sandbox one that was asked for.
func assignPoints() []string {
	points := []string{"assign/renamed", "assign/attached", "assign/record"}
	for _, name := range runtime.UpdatedStages() {
		points = append(points, "update/"+name)
	}
	return points
}

// What the pool holds is nobody's: whatever the daemon was doing with it when it
// died, the next one fills the pool anew and hands out only what is sound.
func TestKilledInPool(t *testing.T) {
	b := newBreakable(t, pooled)
	for _, point := range need.Turn(t, append(assignPoints(), "pool/filled")) {
		t.Run(point, func(t *testing.T) {
			ready(t, b.Daemon)
			workspace := t.TempDir()
			if err := os.Mkdir(filepath.Join(workspace, "nested"), 0o755); err != nil {
				t.Fatal(err)
			}
			nested := "type=bind,src=" + workspace + "/nested,dst=/workspace/nested,ro"
			b.arm(t, point+"=kill")
			create := begin(t, b.Daemon, "create", "--json", "--name", "made", "-m", "100M", "--workspace", workspace, "--mount", nested)
			b.died(t, point)
			if r := create.end(t); r.Code != 0 {
				checkTyped(t, r)
			}
			ready(t, b.Daemon)
			checkPoolSound(t, b.Daemon)
			for _, s := range list(t, b.Daemon) {
				if s.State == "running" {
					checkWorks(t, b.Daemon, s.ID)
				}
				b.Run(t, "rm", "--force", s.ID)
			}
			if out := b.Run(t, "run", "--workspace", workspace, "--mount", nested, "--", "sh", "-c", "touch f && ls; touch nested/f || echo kept").Stdout; out != "f\nnested\nkept\n" {
				t.Errorf("the repeated request printed %q", out)
			}
		})
	}
}

// TestKilledInPoolWithCow: a daemon that dies, or fails, while a ready sandbox gets a copy-on-write
// workspace leaves the directory of the host as it is, and no changes of nobody.
func TestKilledInPoolWithCow(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	b := newBreakable(t, "ids: {blocks: 64}\nprofiles: {work: {disk: 64M}}\npools: [{profile: work, size: 2}]\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("kept\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, point := range need.Turn(t, assignPoints()) {
		for _, how := range []string{"kill", "error"} {
			t.Run(point+" "+how, func(t *testing.T) {
				ready(t, b.Daemon)
				b.arm(t, point+"="+how)
				args := []string{"create", "--json", "--profile", "work", "--name", "made", "--key", point + how, "--workspace", dir + ":cow"}
				create := begin(t, b.Daemon, args...)
				if how == "kill" {
					b.died(t, point)
				}
				if r := create.end(t); r.Code != 0 {
					checkTyped(t, r)
				}
				b.disarm(t)
				b.Run(t, args...)
				b.Run(t, "exec", "made", "--", "sh", "-c", "cat kept && rm kept && touch made")
				if out := b.Run(t, "diff", "--name-only", "made").Stdout; out != "kept\nmade\n" {
					t.Errorf("it differs in %q", out)
				}
				b.Run(t, "inspect", "made")
				b.Run(t, "rm", "--force", "made")
				b.Run(t, "discard", "made")
				if r := b.Run(t, "changes", "ls", "--json"); strings.TrimSpace(r.Stdout) != "[]" {
					t.Errorf("left %s", r.Stdout)
				}
				ready(t, b.Daemon)
				checkPoolSound(t, b.Daemon)
			})
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the host has %v, %v", entries, err)
	}
}

// A ready sandbox that cannot be made what is asked for is not handed out: a new
// one is.
func TestFailureInPool(t *testing.T) {
	b := newBreakable(t, pooled)
	for _, point := range need.Turn(t, assignPoints()) {
		t.Run(point, func(t *testing.T) {
			ready(t, b.Daemon)
			b.arm(t, point+"=error")
			if out := b.Run(t, "run", "--name", "made", "-m", "100M", "--", "echo", "ok").Stdout; out != "ok\n" {
				t.Errorf("printed %q", out)
			}
			b.disarm(t)
			ready(t, b.Daemon)
			checkPoolSound(t, b.Daemon)
		})
	}
}

// checkPoolSound fails t unless the host holds as many sandboxes as are listed
// and as are ready.
func checkPoolSound(t *testing.T, d *harness.Daemon) {
	t.Helper()
	var have map[string][]string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // nothing announces the end of a removal
		have = traces(t, d)
		if len(have) == len(list(t, d))+poolReady(t, d) {
			return
		}
	}
	t.Errorf("the host holds %v beside %v and the pool", have, list(t, d))
}

// A daemon that dies, or fails, at any stage of an update leaves the sandbox as it was or as it
// was to become, and the repeated update is in force (F02, F23).
func TestBrokenUpdate(t *testing.T) {
	b := newBreakable(t, "")
	update := []string{"update", "--json", "-m", "300M", "--allow", "other.example", "box"}
	for _, stage := range need.Turn(t, runtime.UpdatedStages()) {
		for _, how := range []string{"kill", "error"} {
			t.Run(stage+" "+how, func(t *testing.T) {
				b.Run(t, "create", "--name", "box", "-m", "200M", "--allow", "web.example")
				before := b.inForce(t)
				b.arm(t, "update/"+stage+"="+how)
				broken := begin(t, b.Daemon, update...)
				if how == "kill" {
					b.died(t, "update/"+stage)
				}
				if r := broken.end(t); r.Code != 0 {
					checkTyped(t, r)
				} else if how == "error" {
					t.Error("the update did not fail")
				}
				b.disarm(t)
				if now := b.inForce(t); now != before && (how == "error" || now[0] != "314572800") {
					t.Errorf("in force is %q, before it was %q", now, before)
				}
				b.Run(t, update...)
				if now := b.inForce(t); now[0] != "314572800" || now[1] == before[1] {
					t.Errorf("after the repeated update %q is in force", now)
				}
				checkSound(t, b.Daemon)
				b.empty(t)
			})
		}
	}
}

// inForce are the memory limit of the cgroup of "box", and what its policy says of two hosts.
func (b *breakable) inForce(t *testing.T) (now [2]string) {
	t.Helper()
	var box struct {
		Limits struct {
			MemoryBytes json.Number `json:"memory_bytes"`
		}
	}
	b.Run(t, "inspect", "--json", "box").JSONIn(t, "sandbox", &box)
	now[0] = box.Limits.MemoryBytes.String()
	for _, host := range []string{"web.example", "other.example"} {
		now[1] += fmt.Sprint(b.Try("policy", "check", "--sandbox", "box", host).Code)
	}
	return now
}

// A daemon that dies while it changes a sandbox finds it again, whole.
func TestKilledInChange(t *testing.T) {
	b := newBreakable(t, "")
	for point, args := range map[string][]string{
		"pause/frozen":  {"pause", "box"},
		"resume/thawed": {"resume", "box"},
		"update/limits": {"update", "-m", "300M", "--pids", "99", "--cpu-shares", "99", "--io-read-bps", "9M", "box"},
	} {
		t.Run(point, func(t *testing.T) {
			b.Run(t, "create", "--name", "box", "-m", "200M")
			if args[0] == "resume" {
				b.Run(t, "pause", "box")
			}
			b.arm(t, point+"=kill")
			change := begin(t, b.Daemon, append(args, "--json")...)
			b.died(t, point)
			if r := change.end(t); r.Code != 0 {
				checkTyped(t, r)
			}
			l := list(t, b.Daemon)
			if len(l) != 1 {
				t.Fatalf("there are %+v, want the sandbox", l)
			}
			b.Run(t, args...)
			if args[0] == "pause" {
				if r := b.Refused(t, "SBX-114", "exec", "--json", "box", "--", "true"); r.Error.Code == "" {
					t.Error("a paused sandbox runs commands")
				}
				b.Run(t, "resume", "box")
			}
			checkSound(t, b.Daemon)
			b.empty(t)
		})
	}
}
