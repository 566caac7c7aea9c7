package fault

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// withoutIptables runs a command line where no iptables command works: in a mount
// namespace of its own, in which /bin/false stands in their place.
var withoutIptables = []string{"unshare", "--mount", "--propagation", "slave", "sh", "-c",
	`for f in /usr/sbin/xtables-*-multi; do mount --bind /bin/false "$f" || exit 1; done; exec "$@"`, "sh"}

// otherIptables is the same where each does what a line of the shell says.
func otherIptables(t *testing.T, line string) []string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+line+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"unshare", "--mount", "--propagation", "slave", "sh", "-c",
		`script=$1; shift; for f in /usr/sbin/xtables-*-multi; do mount --bind "$script" "$f" || exit 1; done; exec "$@"`, "sh", script}
}

// The doctor names what hangs, and neither waits for it nor leaves it behind.
func TestDoctorOfHungIptables(t *testing.T) {
	d := harness.New(t)
	line := append(otherIptables(t, "exec /bin/sleep 1000.5"), harness.Bin(t, "caissond"), "doctor", "--root", d.Root, "--state", d.State)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput()
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("it took %s", took)
	}
	if !regexp.MustCompile(`(?m)^warn +iptables .*did not end within 30s`).Match(out) {
		t.Errorf("%v:\n%s", err, out)
	}
	await(t, "end of the hung commands", func() bool {
		left, _ := exec.Command("pgrep", "-f", "^/bin/sleep 1000[.]5$").Output() // exits with 1 where there is none
		return len(left) == 0
	})
}

// startFails runs the daemon with wrap before its command line, until it ends with a
// failure, and returns what it said. Meanwhile besides may interfere.
func startFails(t *testing.T, d *harness.Daemon, wrap []string, besides func()) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	line := append(slices.Clone(wrap), harness.Bin(t, "caissond"), "--config", filepath.Join(d.Root, "config.yaml"), "--root", d.Root, "--state", d.State)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	besides()
	if err := cmd.Wait(); err == nil {
		t.Errorf("the daemon started:\n%s", &said)
	}
	return said.String()
}

// A daemon that cannot serve says why and leaves the sandboxes alone, whether it finds out
// before it adopted them or after that. The next one goes on with them, and with their
// commands.
func TestFailedStart(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Run(t, "create", "--name", "lives")
	d.Run(t, "create", "--name", "connected", "--allow", "web.example")
	pids := []int{initOf(t, d, "lives"), initOf(t, d, "connected")}
	job := strings.TrimSpace(d.Run(t, "exec", "-d", "-i", "lives", "--", "sh", "-c", "echo begun; read line; echo $line; exit 3").Stdout)
	d.Kill(t)

	mkdir := func() {
		if err := errors.Join(os.Remove(d.Socket), os.Mkdir(d.Socket, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	rmdir := func() {
		if err := os.Remove(d.Socket); err != nil {
			t.Error(err)
		}
	}
	mkdir()
	if said := startFails(t, d, nil, func() {}); !strings.Contains(said, "something else has that name") {
		t.Errorf("a directory in place of the socket: %s", said)
	}
	rmdir()

	if said := startFails(t, d, withoutIptables, func() {}); !strings.Contains(said, "SBX-402") {
		t.Errorf("without iptables: %s", said)
	}
	const half = `case $1 in --version) echo "iptables v1.8.9 (nf_tables)";; *) exit 1;; esac`
	if said := startFails(t, d, otherIptables(t, half), func() {}); !strings.Contains(said, "SBX-402") {
		t.Errorf("with iptables that fails: %s", said)
	}

	// The path of the socket is taken after the daemon looked, before it is ready.
	said := startFails(t, d, nil, func() {
		await(t, "socket under its private name", func() bool { _, err := os.Lstat(d.Socket + ".new"); return err == nil })
		if err := os.Mkdir(d.Socket, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	})
	if !strings.Contains(said, "file exists") && !strings.Contains(said, "is a directory") {
		t.Errorf("a directory appears: %s", said)
	}
	rmdir()

	d.Launch(t)
	if now := []int{initOf(t, d, "lives"), initOf(t, d, "connected")}; !slices.Equal(now, pids) {
		t.Errorf("PID 1 of the sandboxes: %v before, %v now", pids, now)
	}
	r := d.TryWith("on\n", "attach", "-i", "lives", job)
	if r.Code != 3 || r.Stdout != "begun\non\n" {
		t.Errorf("the command ended with %d: %q %s", r.Code, r.Stdout, r.Stderr)
	}
	checkSound(t, d)
}

// Without sandboxes, a start that fails leaves nothing at all.
func TestFailedStartLeavesNothing(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Stop(t)
	if err := os.MkdirAll(d.Socket, 0o700); err != nil {
		t.Fatal(err)
	}
	startFails(t, d, nil, func() {})
	if err := os.Remove(d.Socket); err != nil {
		t.Error(err)
	}
	d.CheckNothingLeft(t)
	d.Launch(t)
	if r := d.Run(t, "run", "--", "echo", "on"); r.Stdout != "on\n" || r.Duration > time.Minute {
		t.Errorf("%+v", r)
	}
}

// TestStoppedAtItsStart: a daemon that is to end while its engine still starts removes the
// sandboxes of the one before all the same.
func TestStoppedAtItsStart(t *testing.T) {
	d := harness.Start(t)
	for range 3 {
		d.Run(t, "create")
		d.Kill(t)
		d.Launch(t)
		d.Stop(t)
		d.CheckNothingLeft(t)
		d.Launch(t)
	}
}
