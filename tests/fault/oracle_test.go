package fault

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// idForm is an ID of a sandbox, after which all that is its own is named.
var idForm = regexp.MustCompile(`^[a-z2-7]{26}$`)

// listed is a sandbox as ls tells it.
type listed struct{ ID, Name, State string }

func list(t testing.TB, d *harness.Daemon) []listed {
	t.Helper()
	var l []listed
	d.Run(t, "ls", "-o", "json").JSON(t, &l)
	return l
}

// traces finds what the host holds of sandboxes, by ID: files, claims of host
// ids, mounts (network namespaces are some), cgroups, processes, and bundles of
// the engine. Nothing of it is asked of the daemon.
func traces(t testing.TB, d *harness.Daemon) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	note := func(id, what string) {
		if idForm.MatchString(id) && !slices.Contains(found[id], what) {
			found[id] = append(found[id], what)
		}
	}
	for _, pattern := range []string{
		filepath.Join(d.State, "sandboxes", "*"),
		filepath.Join(d.Root, "output", "*"),
		"/sys/fs/cgroup/*/" + d.Instance() + "/*",
		"/sys/fs/cgroup/" + d.Instance() + "/*",
		filepath.Join(d.State, "containerd", "io.containerd.runtime.v2.task", "*", "*"),
		filepath.Join(d.State, "containerd", "*", "io.containerd.runtime.v2.task", "*", "*"),
	} {
		for _, path := range glob(t, pattern) {
			note(filepath.Base(path), path)
		}
	}
	for _, link := range glob(t, filepath.Join(d.State, "ids", "*")) {
		if owner, err := os.Readlink(link); err == nil { // released meanwhile
			note(owner, link)
		}
	}
	inPath := regexp.MustCompile(regexp.QuoteMeta(filepath.Join(d.State, "sandboxes")) + `/([a-z2-7]{26})`)
	for _, m := range inPath.FindAllStringSubmatch(read("/proc/self/mountinfo"), -1) {
		note(m[1], "mount")
	}
	inGroup := regexp.MustCompile("/" + regexp.QuoteMeta(d.Instance()) + `/([a-z2-7]{26})`)
	for _, file := range glob(t, "/proc/[0-9]*/cgroup") {
		if m := inGroup.FindStringSubmatch(read(file)); m != nil {
			note(m[1], "process "+filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// read returns a file that may go at any time.
func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// shims lists the processes of the daemon's shims.
func shims(t testing.TB, d *harness.Daemon) []int { return programs(t, d, "containerd-shim-runc-v2") }

// checkSound fails t unless the host holds exactly what the daemon lists, and
// what it lists works. It waits for what is still being removed.
func checkSound(t testing.TB, d *harness.Daemon) {
	t.Helper()
	var wrong []string
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // nothing announces the end of a removal
		if wrong = orphans(t, d); len(wrong) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind:\n%s", strings.Join(wrong, "\n"))
		}
	}
	for _, s := range list(t, d) {
		if s.State == "running" {
			checkWorks(t, d, s.ID)
		}
	}
}

// orphans lists what belongs to no sandbox that the daemon lists.
func orphans(t testing.TB, d *harness.Daemon) []string {
	t.Helper()
	var wrong []string
	have := traces(t, d)
	known := list(t, d)
	for id, what := range have {
		if !slices.ContainsFunc(known, func(s listed) bool { return s.ID == id }) {
			wrong = append(wrong, fmt.Sprintf("%s: %s", id, strings.Join(what, " ")))
		}
	}
	if len(known) == 0 {
		for _, pid := range shims(t, d) {
			wrong = append(wrong, fmt.Sprintf("shim %d of no sandbox", pid))
		}
		wrong = append(wrong, glob(t, filepath.Join(d.State, "s", "*"))...)
	}
	wrong = append(wrong, glob(t, filepath.Join(d.Root, "spool", "*"))...)
	var left []struct{ Kind, ID, Reason string }
	d.Run(t, "cleanup", "--dry-run", "-o", "json").JSON(t, &left)
	for _, l := range left {
		if l.Kind != "foreign" { // which the test itself put there, and no daemon removes
			wrong = append(wrong, fmt.Sprintf("cleanup would remove %+v", l))
		}
	}
	return wrong
}

// checkWorks fails t unless the sandbox runs a command, under what was declared
// for it.
func checkWorks(t testing.TB, d *harness.Daemon, id string) {
	t.Helper()
	if out := d.Run(t, "exec", id, "--", "sh", "-c", "echo $((40+2)); grep -c 'CapEff:.0000000000000000' /proc/self/status; grep -c 'Seccomp:.2' /proc/self/status").Stdout; out != "42\n1\n1\n" {
		t.Errorf("sandbox %s printed %q", id, out)
	}
	var detail struct {
		Posture []struct{ Name, Declared, Live string }
	}
	d.Run(t, "inspect", "--posture", id, "-o", "json").JSONIn(t, "sandbox", &detail)
	if len(detail.Posture) == 0 {
		t.Errorf("sandbox %s has not been checked", id)
	}
}

var codeForm = regexp.MustCompile(`^SBX-[0-9]{3}$`)

// checkTyped fails t unless r is a refusal with a code that says what happened.
func checkTyped(t testing.TB, r harness.Result) string {
	t.Helper()
	var f harness.Failure
	if err := json.Unmarshal([]byte(r.Stdout), &f); err != nil || r.Code != 125 {
		t.Errorf("caisson %q: exit code %d, want a refusal in JSON\n%s%s", r.Args, r.Code, r.Stdout, r.Stderr)
		return ""
	}
	if c := f.Error.Code; !codeForm.MatchString(c) || c == "SBX-000" || f.Error.Remedy == "" {
		t.Errorf("caisson %q: %+v has no code or no remedy", r.Args, f.Error)
	}
	return f.Error.Code
}

// The oracle sees each kind of trace where there is a sandbox: otherwise its
// silence would say nothing.
func TestOracleSees(t *testing.T) {
	id := strings.TrimSpace(daemon.Run(t, "create").Stdout)
	seen := strings.Join(traces(t, daemon)[id], "\n")
	for _, want := range []string{"/sandboxes/", "/output/", "/cgroup/", "/ids/", "mount", "process ", "io.containerd.runtime.v2.task"} {
		if !strings.Contains(seen, want) {
			t.Errorf("no %q among what the host holds of a live sandbox:\n%s", want, seen)
		}
	}
	if len(shims(t, daemon)) == 0 {
		t.Error("no shim is seen")
	}
	checkSound(t, daemon)
	daemon.Run(t, "rm", "--force", id)
	if have := traces(t, daemon); len(have[id]) != 0 {
		t.Errorf("after rm there is %v", have[id])
	}
}
