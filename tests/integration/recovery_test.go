package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// The next daemon goes on with a detached run of one that was killed; a run in
// the foreground, whose caller is told that it lost it, is ended.
func TestKilledDaemon(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Run(t, "run", "-d", "--name", "victim", "--", "sleep", "1000")
	client := beside(t, d, "run", "--", "sleep", "1000")
	await(t, "both sandboxes", func() bool { return strings.Count(d.Try("ls").Stdout, "running") == 2 })
	d.Kill(t)
	if code := client.end(t); code != 125 || !strings.HasPrefix(client.stderr(), "caisson: the daemon ended, or closed the connection, before the call was over [SBX-803]\n") {
		t.Errorf("the client ended with %d, want 125: its daemon is gone; it says %q", code, client.stderr())
	}
	d.Launch(t)
	await(t, "the end of the foreground run", func() bool {
		l := list(t, d)
		return len(l) == 1 && l[0].Name == "victim" && l[0].State == "running"
	})
	d.Run(t, "run", "--", "true")
	d.Run(t, "rm", "--force", "victim")
	d.AwaitNoSandbox(t)
}

func TestSecondDaemonIsRefused(t *testing.T) {
	out, err := exec.Command(harness.Bin(t, "caissond"), "--config", os.DevNull, "--root", daemon.Root, "--state", daemon.State).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SBX-110") {
		t.Errorf("%v: %s", err, out)
	}
	daemon.Run(t, "run", "--", "true") // the first one does not mind
}

func TestIdleDaemonLeaves(t *testing.T) {
	d := harness.New(t)
	d.Launch(t, "--idle-timeout", "2s")
	d.Run(t, "run", "--", "true")
	d.AwaitEnd(t)
	if d.ExitCode() != 0 {
		t.Errorf("exit code %d\n%s", d.ExitCode(), d.Log())
	}
	d.CheckNothingLeft(t)
}

func TestStoppedDaemonEndsItsRuns(t *testing.T) {
	d := harness.New(t)
	d.Launch(t)
	d.Run(t, "run", "-d", "--", "sleep", "1000")
	client := d.Command(t.Context(), "run", "--", "sh", "-c", "echo up; sleep 1000")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "both sandboxes", func() bool { return strings.Count(d.Try("ls").Stdout, "running") == 2 })
	start := time.Now()
	d.Stop(t)
	_ = client.Wait()
	if client.ProcessState.ExitCode() == 0 {
		t.Error("the client of an ended run reports success")
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("stopping took %s", took)
	}
	d.CheckNothingLeft(t)
}

// Calls that are connected when the daemon is stopped do not hold it up: each ends as
// what it waits for does, commands by TERM.
func TestStoppedDaemonEndsItsCalls(t *testing.T) {
	t.Parallel()
	d := harness.New(t)
	d.Launch(t)
	d.Run(t, "create", "--name", "box")
	job := strings.TrimSpace(d.Run(t, "exec", "-d", "box", "--", "sh", "-c", "echo up; sleep 1000").Stdout)
	calls := []struct {
		what, says string
		code       int
		client     *client
	}{
		{"wait", "", 0, beside(t, d, "wait", "box")},
		{"policy log", "", 0, beside(t, d, "policy", "log", "--follow", "box")},
		{"exec", "up\nasked\n", 9, beside(t, d, "exec", "box", "--", "sh", "-c", "trap 'echo asked; exit 9' TERM; echo up; while :; do usleep 10000; done")},
		{"exec -i", "up\n", 143, beside(t, d, "exec", "-i", "box", "--", "sh", "-c", "echo up; exec cat")},
		{"run", "up\n", 143, beside(t, d, "run", "--", "sh", "-c", "echo up; exec sleep 1000")},
		{"logs", "up\n", 0, beside(t, d, "logs", "--follow", "--exec", job, "box")},
	}
	for _, c := range calls[2:] { // by then those before are connected too
		c.client.awaitStdout(t, "up\n")
	}
	watching := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		watching <- api.Dial(d.Socket).WatchFiles(t.Context(), &caissonv1.WatchFilesRequest{Ref: "box", Path: "/tmp"}, func() { close(ready) }, func(*caissonv1.FileEvent) error { return nil })
	}()
	<-ready
	start := time.Now()
	d.Stop(t)
	if took := time.Since(start); took > 4*time.Second { // of the 5 that who is deaf has
		t.Errorf("stopping took %s", took)
	}
	for _, c := range calls {
		if code := c.client.end(t); code != c.code || c.client.stdout() != c.says {
			t.Errorf("%s ended with %d, want %d: %q %q", c.what, code, c.code, c.client.stdout(), c.client.stderr())
		}
	}
	if err := <-watching; !errors.Is(err, sbxerr.State) || !strings.Contains(err.Error(), "the daemon is stopping") {
		t.Errorf("watch: %v", err)
	}
	d.CheckNothingLeft(t)
}

// containerd is restarted when it dies; sandboxes do not notice.
func TestKilledContainerd(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "-d", "--name", "survivor", "--", "sh", "-c", "sleep 3; echo alive")
	pid := containerdOf(t, d)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.Run(t, "run", "--", "true")
	if now := containerdOf(t, d); now == pid {
		t.Error("containerd was not restarted")
	}
	if out := d.Run(t, "logs", "--follow", "survivor").Stdout; out != "alive\n" {
		t.Errorf("the sandbox printed %q", out)
	}
	await(t, "its end", func() bool { return strings.Contains(d.Try("ls").Stdout, "exited") })
	d.Run(t, "rm", "survivor")
	d.AwaitNoSandbox(t)
}

// containerdOf finds the daemon's own containerd among its children.
func containerdOf(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(d.PID()) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, child := range strings.Fields(string(data)) {
			if exe, err := os.Readlink("/proc/" + child + "/exe"); err == nil && filepath.Base(exe) == "containerd" {
				pid, err := strconv.Atoi(child)
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		}
	}
	t.Fatal("the daemon has no containerd")
	return 0
}

// What a crash left is found, told and removed.
func TestCleanup(t *testing.T) {
	const orphan = "abcdefghijklmnopqrstuvwx23"
	if err := os.Mkdir(filepath.Join(daemon.State, "sandboxes", orphan), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(daemon.Root, "output", orphan), 0o700); err != nil {
		t.Fatal(err)
	}
	type leftover struct {
		Kind, ID string
		Removed  bool
	}
	var found []leftover
	daemon.Run(t, "cleanup", "--dry-run", "-o", "json").JSON(t, &found)
	if len(found) != 1 || found[0].ID != orphan || found[0].Removed {
		t.Errorf("dry run: %+v", found)
	}
	daemon.Run(t, "cleanup", "-o", "json").JSON(t, &found)
	if len(found) != 1 || !found[0].Removed {
		t.Errorf("cleanup: %+v", found)
	}
	if out := daemon.Run(t, "cleanup", "-o", "json").Stdout; strings.TrimSpace(out) != "[]" {
		t.Errorf("a second cleanup found %s", out)
	}
	daemon.AwaitNoSandbox(t)
}

// The host's own containerd serves as well: the pinned version, and 1.7.
func TestForeignContainerd(t *testing.T) {
	for name, dir := range map[string]string{"pinned": os.Getenv("CAISSON_BIN_DIR"), "1.7": os.Getenv("CAISSON_CONTAINERD17_DIR")} {
		t.Run(name, func(t *testing.T) {
			if dir == "" {
				need.Missing(t, "CAISSON_BIN_DIR and CAISSON_CONTAINERD17_DIR, with a containerd each")
			}
			address := foreignContainerd(t, dir)
			d := harness.Start(t, "--containerd-address", address)
			if out := d.Run(t, "run", "--", "sh", "-c", "echo hi; id -u").Stdout; out != "hi\n1000\n" {
				t.Errorf("printed %q", out)
			}
			if r := d.Try("run", "--workspace", workspace(t, 0, 0), "--", "sh", "-c", "touch x; exit 9"); r.Code != 9 {
				t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
			}
			d.AwaitNoSandbox(t)
		})
	}
}

// foreignContainerd starts a containerd as a host's package would, and stops
// it at the end of t.
func foreignContainerd(t *testing.T, dir string) string {
	t.Helper()
	state, err := os.MkdirTemp("/run", "caisson-c")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("/var/tmp", "caisson-c")
	if err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(state, "c.sock")
	config := filepath.Join(state, "config.toml")
	text := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "containerd"), "--config", config, "--root", root, "--state", state, "--address", address, "--log-level", "error")
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		for _, dir := range []string{root, state} {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	await(t, "the foreign containerd", func() bool {
		_, err := os.Stat(address)
		return err == nil
	})
	return address
}

// A containerd that nobody answers for is an error at once, not a hang.
func TestAbsentContainerd(t *testing.T) {
	d := harness.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, harness.Bin(t, "caissond"), "--config", os.DevNull, "--root", d.Root, "--state", d.State,
		"--containerd-address", filepath.Join(d.State, "absent.sock")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SBX-602") {
		t.Errorf("%v: %s", err, out)
	}
	d.CheckNothingLeft(t)
}
