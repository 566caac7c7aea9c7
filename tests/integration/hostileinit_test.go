package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/tests/harness"
)

// withInit starts a daemon whose sandboxes have a PID 1 that misbehaves.
func withInit(t *testing.T, mode string) *harness.Daemon {
	t.Helper()
	dir := harness.ProgramsWithout(t, "caisson-init")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X 'main.mode="+mode+"'", "-o", filepath.Join(dir, "caisson-init"), "./hostile")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return harness.Start(t, "--bin-dir", dir)
}

// A PID 1 that does not come up as it should never becomes a sandbox.
func TestHostileHello(t *testing.T) {
	for mode, says := range map[string]string{
		"silent":        "caisson-init did not connect within 15s",
		"exits":         "caisson-init ended before it connected",
		"version":       fmt.Sprintf("caisson-init speaks version 99, this daemon %d", initproto.Version),
		"holds":         "await held command", // it announced some
		"started first": "caisson-init broke its protocol: initproto.Started before hello",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := withInit(t, mode)
			f := d.Refused(t, "SBX-604", "create", "-o", "json")
			if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, says) {
				t.Errorf("it does not say %q: %s", says, all)
			}
			d.AwaitNoSandbox(t)
		})
	}
}

// What a PID 1 that turns against its daemon may cost: its own sandbox, a
// bounded time, and next to no memory of the daemon's.
func TestHostileInit(t *testing.T) {
	for _, tt := range []struct {
		mode, says string
		code       int
		args       []string
		ends       bool // the sandbox
	}{
		{"mute", "no answer to a start for 10s", 125, nil, true},
		{"own pid", "malformed message: value out of range", 125, nil, true},
		{"flood", `"reason": "exited"`, 0, nil, true}, // its first word is the command's end
		{"deaf", `"reason": "timeout"`, 124, []string{"--timeout", "1s"}, true},
		{"prattling", `"truncated": true`, 5, []string{"--output-limit", "64K"}, false}, // which each command may do
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			d := withInit(t, tt.mode)
			box(t, d, "hostile")
			files, memory := d.OpenFiles(t), residentKiB(t, d.PID())
			r := d.Try(append(append([]string{"exec", "--json"}, tt.args...), "hostile", "--", "true")...)
			if r.Code != tt.code || !strings.Contains(r.Stdout, tt.says) || r.Duration > 30*time.Second {
				t.Errorf("code %d after %s, want %d and %q: %.2000s%s", r.Code, r.Duration, tt.code, tt.says, r.Stdout, r.Stderr)
			}
			if tt.ends {
				await(t, "its end", func() bool { return list(t, d)[0].State == "exited" })
			}
			d.Run(t, "rm", "--force", "hostile")
			d.AwaitNoSandbox(t)
			if now := residentKiB(t, d.PID()); now > memory+32<<10 {
				t.Errorf("the daemon has %d KiB, had %d", now, memory)
			}
			if now := d.OpenFiles(t); now > files {
				t.Errorf("the daemon has %d open files, had %d", now, files)
			}
		})
	}
}

// One that says what nobody asked for may be taken for a sandbox until it does,
// and not for longer. It does not hold up the daemon's end.
func TestHostileInitUnasked(t *testing.T) {
	t.Parallel()
	d := withInit(t, "unasked")
	r := d.Try("create", "--json", "--name", "hostile") // it may be noticed before this returns
	await(t, "its end", func() bool { l := list(t, d); return len(l) == 0 || l[0].State == "exited" })
	if r.Code == 0 {
		d.Refused(t, "SBX-108", "exec", "--json", "hostile", "--", "true")
	}
}

// residentKiB is the memory of a process.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
