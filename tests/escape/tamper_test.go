package escape

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestTamperedSandboxesNeverRun: a runtime that does something else than it
// was told is found out before anything of the caller's has run, and what it
// made is removed.
//
//caisson:host most of a minute of emulation; runtime/posture finds every difference here
func TestTamperedSandboxesNeverRun(t *testing.T) {
	bin := tamperedBin(t)
	d := harness.Start(t, "--bin-dir", bin, "--config", fewIDs(t))
	kind := filepath.Join(bin, "tamper")
	run := func(t *testing.T) harness.Result {
		t.Helper()
		dir := workspace(t)
		r := d.Try("run", "--json", "--workspace", dir, "--", "sh", "-c", "echo ran; touch ran")
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil && r.Code != 0 {
			t.Error("the command ran all the same")
		}
		return r
	}
	// The stand-in as such changes nothing: what follows is the changes' doing.
	must(t, os.WriteFile(kind, []byte("nothing"), 0o600))
	if r := run(t); r.Code != 0 {
		t.Fatalf("an honest runtime is refused: %s%s", r.Stdout, r.Stderr)
	}
	for _, change := range []string{"seccomp", "capability", "neither", "user", "group", "memory", "pids", "cpu", "masked-path", "read-only-path",
		"mount", "mount-options", "writable-usr", "oom-score", "host-network", "host-ipc", "environment", "id-map", "users"} {
		t.Run(change, func(t *testing.T) {
			held(t, "P156", "a runtime that changes: "+change)
			must(t, os.WriteFile(kind, []byte(change), 0o600))
			var f harness.Failure
			r := run(t)
			r.JSON(t, &f)
			if r.Code != 125 || f.Error.Code != "SBX-605" || f.Error.Message == "" {
				t.Errorf("exit code %d, %+v", r.Code, f.Error)
			}
			d.AwaitNoSandbox(t)
		})
	}
	// Without no_new_privs runc loads the filter before it has finished, and the
	// filter refuses the rest of its work: the engine's failure, not ours to find.
	t.Run("no-new-privs", func(t *testing.T) {
		held(t, "P156", "a runtime that changes: no-new-privs")
		must(t, os.WriteFile(kind, []byte("no-new-privs"), 0o600))
		if r := run(t); r.Code != 125 {
			t.Errorf("exit code %d: %s", r.Code, r.Stdout)
		}
		d.AwaitNoSandbox(t)
	})
	t.Run("runtime that went away", func(t *testing.T) {
		held(t, "P155", "the runtime goes away")
		must(t, os.Remove(filepath.Join(bin, "runc.real")))
		if r := run(t); r.Code != 125 {
			t.Errorf("exit code %d: %s", r.Code, r.Stdout)
		}
		d.AwaitNoSandbox(t)
	})
}

// TestMissingDependencies: what is missing is refused before anything is
// offered, by name.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestMissingDependencies(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		spoil      func(bin string) error
	}{
		{"no runc", "SBX-606", remove("runc")},
		{"no shim", "SBX-606", remove("containerd-shim-runc-v2")},
		{"no shim of ours", "SBX-606", remove("caisson-shim")},
		{"no containerd", "SBX-606", remove("containerd")},
		{"no init", "SBX-606", remove("caisson-init")},
		{"no gateway", "SBX-606", remove("caisson-gateway")},
		{"a runc that others can write", "SBX-606", func(bin string) error { return os.Chmod(filepath.Join(bin, "runc"), 0o777) }},
		{"a runc without seccomp", "SBX-301", tamperWith("no-seccomp")},
		{"a runc that is known to be vulnerable", "SBX-603", tamperWith("old")},
		{"a runc that does not run", "SBX-606", remove("runc.real")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			held(t, "P155", tt.name)
			bin := tamperedBin(t)
			must(t, tt.spoil(bin))
			d := harness.New(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, harness.Bin(t, "caissond"), "--config", fewIDs(t), "--root", d.Root, "--state", d.State, "--bin-dir", bin)
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			out, err := cmd.CombinedOutput()
			if err == nil || ctx.Err() != nil || !strings.Contains(string(out), tt.code) {
				t.Errorf("the daemon ended with %v, %v, and not with %s:\n%s", err, ctx.Err(), tt.code, out)
			}
			d.CheckNothingLeft(t)
		})
	}
}

func remove(name string) func(string) error {
	return func(bin string) error { return os.Remove(filepath.Join(bin, name)) }
}

func tamperWith(kind string) func(string) error {
	return func(bin string) error { return os.WriteFile(filepath.Join(bin, "tamper"), []byte(kind), 0o600) }
}

// tamperedBin is a directory of programs in which the prober stands in for
// runc.
func tamperedBin(t *testing.T) string {
	t.Helper()
	dir := harness.ProgramsWithout(t, "runc")
	copyFile(t, harness.Bin(t, "runc"), filepath.Join(dir, "runc.real"), 0o755)
	copyFile(t, prober(t), filepath.Join(dir, "runc"), 0o755)
	must(t, os.WriteFile(filepath.Join(dir, "tamper"), []byte("nothing"), 0o600))
	return dir
}

// fewIDs is a configuration that leaves host ids for other daemons.
func fewIDs(t *testing.T) string {
	t.Helper()
	path := filepath.Join(workspace(t), "config.yaml")
	must(t, os.WriteFile(path, []byte("ids: {blocks: 8}\nwarm: 0\n"), 0o600))
	return path
}
