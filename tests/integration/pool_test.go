package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

type poolStats struct {
	Profile, Image       string
	Ready, Filling, Size int
	Target, Max          int
	Hits, Misses         int64
}

func poolOf(t *testing.T, d *harness.Daemon) poolStats {
	t.Helper()
	var st struct{ Pools []poolStats }
	d.Run(t, "info", "-o", "json").JSON(t, &st)
	if len(st.Pools) != 1 {
		t.Fatalf("pools %+v", st.Pools)
	}
	return st.Pools[0]
}

func awaitReady(t *testing.T, d *harness.Daemon, n int) {
	t.Helper()
	await(t, "a full pool", func() bool { p := poolOf(t, d); return p.Ready == n && p.Filling == 0 })
}

// A sandbox from the pool is in nothing different from one that was made for
// its request.
func TestPoolGivesWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools:\n  - {size: 1}\n")
	awaitReady(t, d, 1)
	if l := list(t, d); len(l) != 0 {
		t.Errorf("ready sandboxes are listed: %+v", l)
	}
	dir := workspace(t, 4321, 4321)
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("seen\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(dir, "in"), 4321, 4321); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-m", "48M", "--cpus", "0.5", "-e", "OWN=yes", "-l", "k=v", "--workspace", dir, "--ttl", "1h"}
	warm := box(t, d, "warm", flags...)
	if p := poolOf(t, d); p.Hits != 1 || p.Misses != 0 {
		t.Fatalf("the pool did not serve it: %+v", p)
	}
	cold := box(t, d, "cold", append(flags, "--open-files", "1000")...) // of another kind
	if p := poolOf(t, d); p.Hits != 1 {
		t.Fatalf("the pool served another kind: %+v", p)
	}
	const look = `pwd; cat in; echo $OWN $HOSTNAME | sed s/$(hostname)/ID/; hostname; id; env | cut -d= -f1 | sort; echo made > out$1; grep -c . /proc/mounts; cut -d' ' -f2-4 /proc/mounts | grep workspace`
	show := func(name, id string) string {
		return strings.ReplaceAll(d.Run(t, "exec", name, "--", "sh", "-c", look, "sh", name).Stdout, id, "ID")
	}
	if w, c := show("warm", warm), show("cold", cold); w != c || !strings.Contains(w, "/workspace\nseen\nyes ID\n") {
		t.Errorf("warm:\n%s\ncold:\n%s", w, c)
	}
	for _, name := range []string{"warm", "cold"} {
		if st, err := os.Stat(filepath.Join(dir, "out"+name)); err != nil {
			t.Error(err)
		} else if uid := ownerOf(st); uid != 4321 {
			t.Errorf("the file of %s belongs to %d", name, uid)
		}
	}
	w, c := inspect(t, d, "warm"), inspect(t, d, "cold")
	if w.Limits != c.Limits || w.Labels["k"] != "v" || w.ExpiresAt == nil || w.Limits.MemoryBytes != 48<<20 || w.Limits.MilliCPU != 500 {
		t.Errorf("warm %+v\ncold %+v", w, c)
	}
	samePosture := func() {
		t.Helper()
		w, c := postureOf(t, d, "warm"), postureOf(t, d, "cold")
		if !maps.Equal(w, c) || len(w) < 20 || !strings.HasPrefix(w["mount /workspace"], "bind nosuid nodev of ") {
			t.Errorf("posture:\n%v\nof a cold one:\n%v", w, c)
		}
	}
	samePosture()
	d.Kill(t)
	d.Launch(t)
	for _, name := range []string{"warm", "cold"} {
		d.Run(t, "exec", name, "--", "cat", "in")
	}
	samePosture()
	r := d.Try("exec", "warm", "--", "tail", "/dev/zero")
	if r.Code != 137 { // the limit is the kernel's, not only told
		t.Errorf("beyond its memory: code %d", r.Code)
	}
	if err := os.Remove(filepath.Join(dir, "in")); err != nil {
		t.Error(err)
	}
}

// A request may ask for other memory and a tmpfs of its own, and is served by the pool all
// the same. The tmpfs has what was asked for, or half of the memory.
func TestTmpfsOutOfThePool(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools:\n  - {size: 1}\n")
	for i, tt := range []struct {
		flags []string
		mib   int
	}{
		{nil, 256},
		{[]string{"-m", "1G"}, 512},
		{[]string{"-m", "64M"}, 32},
		{[]string{"-m", "64M", "--tmpfs", "300M"}, 300},
	} {
		awaitReady(t, d, 1)
		name := fmt.Sprintf("pooled-%d", i)
		box(t, d, name, tt.flags...)
		if p := poolOf(t, d); p.Hits != int64(i+1) || p.Misses != 0 {
			t.Errorf("%q: the pool did not serve it: %+v", tt.flags, p)
		}
		out := d.Run(t, "exec", name, "--", "sh", "-c", "for d in /tmp /var/tmp /home /run /dev/shm; do stat -f -c '%b %S' $d; done").Stdout
		if want := strings.Repeat(fmt.Sprintf("%d 4096\n", tt.mib<<20/4096), 5); out != want {
			t.Errorf("%q: sizes are\n%swant\n%s", tt.flags, out, want)
		}
		inspect(t, d, name) // compares everything with what is declared
		d.Run(t, "rm", "--force", name)
	}
}

// postureOf is what was compared of a sandbox, with what was declared of its
// limits and workspace, which a claim sets.
func postureOf(t *testing.T, d *harness.Daemon, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, c := range inspect(t, d, name).Posture {
		out[c.Name] = ""
		if strings.HasPrefix(c.Name, "cgroup ") || c.Name == "mount /workspace" {
			out[c.Name] = c.Declared
		}
	}
	return out
}

// One whose workspace is gone from its place is not shown as if it were there.
func TestPooledSandboxIsLookedAt(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools:\n  - {size: 1}\n")
	for _, tamper := range []bool{false, true} {
		awaitReady(t, d, 1)
		box(t, d, "warm", "--workspace", workspace(t, 4321, 4321))
		if tamper {
			pid := strconv.Itoa(list(t, d)[0].PID)
			if out, err := exec.Command("nsenter", "--mount", "--target", pid, "--", "/bin/busybox", "umount", "/workspace").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			f := d.Refused(t, "SBX-605", "inspect", "-o", "json", "warm")
			if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, "mount /workspace is \"none\"") {
				t.Errorf("message %q", all)
			}
			await(t, "its end", func() bool { return len(list(t, d)) == 0 })
			continue
		}
		inspect(t, d, "warm")
		d.Run(t, "rm", "--force", "warm")
	}
}

// Each ready sandbox serves one request, and the pool fills again.
func TestPooledSandboxIsUsedOnce(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools:\n  - {size: 2}\n")
	seen := map[string]bool{}
	for range 4 {
		awaitReady(t, d, 2)
		var r harness.RunResult
		d.Run(t, "run", "--json", "--", "sh", "-c", "ls -A /tmp; touch /tmp/used").JSONIn(t, "result", &r)
		if r.Stdout != "" || seen[r.Sandbox.ID] {
			t.Errorf("sandbox %s was used before: %q", r.Sandbox.ID, r.Stdout)
		}
		seen[r.Sandbox.ID] = true
	}
	if p := poolOf(t, d); p.Hits != 4 || p.Misses != 0 {
		t.Errorf("pool %+v", p)
	}
	if d.RunJSON(t, "--pids", "77", "--", "true").ExitCode != 0 || poolOf(t, d).Hits != 4 {
		t.Errorf("another kind was served: %+v", poolOf(t, d))
	}
	awaitReady(t, d, 2)
	d.Kill(t) // what waits in a pool is not gone on with
	d.Launch(t)
	awaitReady(t, d, 2)
	d.Run(t, "run", "--", "true")
}

// kinds are flags with which a sandbox is taken from the pool, and is not.
var kinds = map[string][]string{"warm": nil, "cold": {"--pids", "77"}}

// A sandbox that is for one command ends with that, and tells how it ended, whatever
// else ran there, and whether it was ready or made for it.
func TestMainCommandInAPooledSandbox(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools:\n  - {size: 1}\n")
	const await = "until [ -e /tmp/go ]; do sleep 0.05; done; "
	others := func(name string) {
		t.Helper()
		for range 2 {
			d.Run(t, "exec", name, "--", "true")
		}
		if l := list(t, d); len(l) != 1 || l[0].State != "running" {
			t.Errorf("after other commands: %+v", l)
		}
		if r := d.Try("exec", name, "--", "touch", "/tmp/go"); r.Code != 0 && r.Code != 137 { // the sandbox may end first
			t.Errorf("let it go on: %+v", r)
		}
	}
	for name, flags := range kinds {
		awaitReady(t, d, 1)
		d.Run(t, append(append([]string{"run", "-d", "--name", name}, flags...), "--", "sh", "-c", "echo out; "+await+"exit 3")...)
		others(name)
		if r := d.Try("wait", name); r.Code != 3 {
			t.Errorf("wait: %+v", r)
		}
		if out := d.Run(t, "logs", name).Stdout; out != "out\n" {
			t.Errorf("logs %q", out)
		}
		for _, show := range [][]string{{"inspect", name}, {"ls", "-o", "json"}} {
			text := d.Run(t, show...).Stdout
			type ended struct{ Result *harness.RunResult }
			var one struct {
				Sandbox *ended
				ended
			}
			text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "["), "]")
			err := json.Unmarshal([]byte(text), &one)
			if one.Sandbox != nil {
				one.ended = *one.Sandbox
			}
			if err != nil || one.Result == nil || one.Result.ExitCode != 3 || one.Result.Reason != "exited" {
				t.Errorf("%v, %v: %s", show, err, text)
			}
		}
		d.Run(t, "rm", name)
		awaitReady(t, d, 1)
		ended := make(chan harness.Result, 1)
		go func() {
			ended <- d.Try(append(append([]string{"run", "--name", name}, flags...), "--", "sh", "-c", await+"exit 5")...)
		}()
		awaitRunning(t, d, name)
		others(name)
		if r := <-ended; r.Code != 5 {
			t.Errorf("an attached run: %+v", r)
		}
	}
	if p := poolOf(t, d); p.Hits != 2 {
		t.Errorf("pool %+v", p)
	}
}

func awaitRunning(t *testing.T, d *harness.Daemon, name string) {
	t.Helper()
	await(t, "a sandbox that runs", func() bool { l := list(t, d); return len(l) == 1 && l[0].Name == name && l[0].State == "running" })
}

// The result of a run tells what it took, out of the pool too.
func TestResultOutOfThePool(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools:\n  - {size: 1}\n")
	for name, flags := range kinds {
		awaitReady(t, d, 1)
		var r struct {
			harness.RunResult
			Stages []struct{ Name string }
		}
		d.Try(append(append([]string{"run", "--json", "--trace"}, flags...), "--", "sh", "-c", "exit 4")...).JSONIn(t, "result", &r)
		if n := len(r.Stages); r.ExitCode != 4 || r.Usage.PeakMemory == 0 || n < 2 || r.Stages[n-1].Name != "exec" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// The sandboxes of an image that is replaced or removed are not given out.
func TestPoolOfARemovedImage(t *testing.T) {
	t.Parallel()
	d := harness.New(t)
	d.Launch(t)
	t.Cleanup(func() {
		d.Stop(t)
		d.CheckNothingLeft(t)
	})
	file := filepath.Join(t.TempDir(), "i.tar")
	load := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, tarOf(t, rootFiles(t, content)), 0o644); err != nil {
			t.Fatal(err)
		}
		d.Run(t, "image", "import", "--name", "mine", file)
	}
	load("first")
	d.Stop(t)
	d.Config = "pools:\n  - {image: mine, size: 1}\n"
	d.Launch(t)
	awaitReady(t, d, 1)
	load("second")
	if r := d.RunJSON(t, "--image", "mine", "--", "cat", "/mark"); r.Stdout != "second" {
		t.Errorf("after the import of another: %+v", r)
	}
	awaitReady(t, d, 1)
	d.Run(t, "image", "rm", "mine")
	await(t, "an empty pool", func() bool { return poolOf(t, d).Ready == 0 })
	d.Refused(t, "SBX-201", "run", "--json", "--image", "mine", "--", "true")
}

// A pool that bursts find empty grows for the next one, never above its max.
func TestPoolGrows(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "pools:\n  - {size: 1, max: 3}\n")
	burst := func(n int) {
		t.Helper()
		var all []*client
		for range n {
			all = append(all, beside(t, d, "run", "--", "true"))
		}
		for _, c := range all {
			if code := c.end(t); code != 0 {
				t.Errorf("code %d: %s", code, c.stderr())
			}
		}
	}
	awaitReady(t, d, 1)
	for _, target := range []int{2, 3, 3} {
		burst(6)
		awaitReady(t, d, target)
		if p := poolOf(t, d); p.Target != target || p.Size != 1 || p.Max != 3 || p.Misses == 0 {
			t.Errorf("want a target of %d: %+v", target, p)
		}
	}
	before := poolOf(t, d).Misses
	burst(3)
	if p := poolOf(t, d); p.Misses != before {
		t.Errorf("grown to 3, it was missed by 3: %+v", p)
	}
}

// scarceMemory is what is put before a daemon's command line so that it reads
// in the file meminfo how much memory the host has. The other proc is for runc:
// the kernel lets a sandbox have its own only where one lies open.
func scarceMemory(meminfo, proc string) []string {
	const script = `mount -t proc proc "$2" && mount --bind "$1" /proc/meminfo && shift 2 && exec "$@"`
	return []string{"unshare", "--mount", "sh", "-ec", script, "sh", meminfo, proc}
}

// A pool empties itself when the host runs short of memory, and fills again when
// it no longer does. Requests are served all the while.
func TestPoolUnderMemoryPressure(t *testing.T) {
	t.Parallel()
	d := harness.New(t)
	dir := t.TempDir()
	meminfo, proc := filepath.Join(dir, "meminfo"), filepath.Join(dir, "proc")
	available := func(kib int) {
		t.Helper()
		if err := os.WriteFile(meminfo, fmt.Appendf(nil, "MemTotal: 10000000 kB\nMemAvailable: %d kB\n", kib), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	available(5_000_000)
	if err := os.Mkdir(proc, 0o755); err != nil {
		t.Fatal(err)
	}
	d.Config, d.Wrap = "pools:\n  - {size: 2}\n", scarceMemory(meminfo, proc)
	d.Launch(t)
	t.Cleanup(func() {
		d.Stop(t)
		d.CheckNothingLeft(t)
	})
	awaitReady(t, d, 2)
	available(999_000)
	await(t, "an empty pool", func() bool { p := poolOf(t, d); return p.Ready == 0 && p.Filling == 0 })
	d.AwaitNoSandbox(t)
	before := poolOf(t, d)
	d.Run(t, "run", "--", "true")
	if p := poolOf(t, d); p.Hits != before.Hits || p.Ready+p.Filling != 0 {
		t.Errorf("while memory is short: %+v", p)
	}
	available(1_001_000)
	awaitReady(t, d, 2)
	d.Run(t, "run", "--", "true")
	if p := poolOf(t, d); p.Hits != before.Hits+1 {
		t.Errorf("afterwards: %+v", p)
	}
}
