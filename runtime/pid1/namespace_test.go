package pid1

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/tests/need"
)

// namespaceEnv makes the test binary PID 1 of a sandbox-like place before it
// becomes the program that the variable names.
const namespaceEnv = "PID1_TEST_EXEC"

// sandboxID is the user in it, who has no processes elsewhere, and maxTasks how
// many that user may have.
const (
	sandboxID = 1879049192
	maxTasks  = 60
)

// becomePID1 mounts /proc for the new pid namespace, gives up all rights and
// executes path. It never returns.
func becomePID1(path string) {
	goruntime.LockOSThread()
	steps := []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("tmpfs", "/home", "tmpfs", 0, "mode=1777"),
		syscall.Setgroups(nil),
		syscall.Setgid(sandboxID),
		syscall.Setuid(sandboxID),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: maxTasks, Max: maxTasks}),
	}
	for i, err := range steps {
		if err != nil {
			fmt.Fprintf(os.Stderr, "step %d: %v\n", i, err)
			os.Exit(99)
		}
	}
	err := syscall.Exec(path, []string{path}, []string{initproto.SocketEnv + "=" + os.Getenv(initproto.SocketEnv)})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(99)
}

// runPID1 runs caisson-init as PID 1 of a new namespace.
func runPID1(t testing.TB) *realInit {
	t.Helper()
	return runPID1With(t, Options{})
}

func runPID1With(t testing.TB, o Options) *realInit {
	t.Helper()
	need.Root(t, "makes pid and mount namespaces")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{namespaceEnv + "=" + program.Path(t)}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	return runInitOptions(t, dir, sandboxID, sandboxID, cmd, o)
}

// inside is sh as the sandbox's user.
func inside(script string) Command {
	cmd := sh(script)
	cmd.UID, cmd.GID, cmd.Groups = sandboxID, sandboxID, nil
	return cmd
}

func TestPID1BearsEverySignalFromInside(t *testing.T) {
	r := runPID1(t)
	stdout, _, _ := r.run(t, inside(`i=1; while [ $i -le 64 ]; do kill -$i 1 || echo $i; i=$((i+1)); done`), "")
	if stdout != "" {
		t.Errorf("not sent: %q", stdout)
	}
	for range 3 { // it still serves
		if _, _, exit := r.run(t, inside("kill -9 -1; exit 3"), ""); exit.Code != 3 && exit.Signal != syscall.SIGKILL {
			t.Errorf("%+v", exit)
		}
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func TestPID1CannotBeReadFromInside(t *testing.T) {
	r := runPID1(t)
	for _, script := range []string{
		"cat /proc/1/environ", "cat /proc/1/maps", "ls /proc/1/fd/", "cat /proc/1/mem", "cat /proc/1/exe",
		"ls -l /proc/1/cwd/", ": </proc/1/fd/3",
	} {
		if stdout, stderr, exit := r.run(t, inside(script), ""); exit.Code == 0 || stdout != "" || !strings.Contains(strings.ToLower(stderr), "denied") {
			t.Errorf("%s: %+v, %q %q", script, exit, stdout, stderr)
		}
	}
	stdout, _, _ := r.run(t, inside("cat /proc/1/comm; grep -E 'CapEff|NoNewPrivs' /proc/self/status"), "")
	if want := initproto.BinaryName + "\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"; stdout != want {
		t.Errorf("got %q, want %q", stdout, want)
	}
}

func TestPID1RefusesOtherUsers(t *testing.T) {
	r := runPID1(t)
	for i, cmd := range []Command{
		{Args: []string{"true"}, Cwd: "/", UID: 0, GID: 0},
		{Args: []string{"true"}, Cwd: "/", UID: 1001, GID: sandboxID},
		{Args: []string{"true"}, Cwd: "/", UID: sandboxID, GID: sandboxID, Groups: []uint32{0}},
	} {
		cmd.Number = uint32(i + 1)
		_, err := r.Start(testContext(t), cmd)
		var start *StartError
		if !errors.As(err, &start) || start.Stage != initproto.StageUser.String() || start.Errno != syscall.EPERM {
			t.Errorf("as %d:%d %v: %v", cmd.UID, cmd.GID, cmd.Groups, err)
		}
	}
}

func TestPID1ReapsOrphans(t *testing.T) {
	r := runPID1(t)
	// Each subshell leaves its child behind, which soon ends as an orphan.
	r.run(t, inside("i=0; while [ $i -lt 200 ]; do (sleep 0.01 &); i=$((i+1)); done"), "")
	stdout, _, _ := r.run(t, inside("sleep 0.2; grep -l '^State:.Z' /proc/[0-9]*/status; true"), "")
	if stdout != "" {
		t.Errorf("zombies: %q", stdout)
	}
}

// When the commands have used up all processes, PID 1 must say so, go on
// serving and still be able to end what there is. It is a Go program: one more
// thread that its runtime wants and does not get would be its end.
func TestPID1SurvivesTheLimitOfProcesses(t *testing.T) {
	r := runPID1(t)
	first, err := r.Start(testContext(t), inside("exec sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	// This one takes all there are, before PID 1 had any use for more threads;
	// the shell gives up at the first fork that fails.
	_, _, bomb := r.run(t, inside("while :; do sleep 100 >/dev/null 2>&1 & done"), "")
	if want := maxTasks - initThreads - 2; bomb.Remaining < want || bomb.Code == 0 {
		t.Errorf("%+v, want at least %d remaining", bomb, want)
	}
	sleeps := []*Exec{first}
	for err == nil && len(sleeps) < maxTasks { // the shell's own place is free again
		var e *Exec
		if e, err = r.Start(testContext(t), inside("exec sleep 100")); err == nil {
			sleeps = append(sleeps, e)
		}
	}
	large := inside(strings.Repeat(" ", 100<<10)) // makes PID 1 collect garbage
	for range 50 {
		_, err := r.Start(testContext(t), large)
		var start *StartError
		if !errors.As(err, &start) || start.Stage != initproto.StageFork.String() || !errors.Is(err, sbxerr.Processes) {
			t.Fatalf("Start: %v", err)
		}
	}
	for _, change := range []func(*Command){ // both need one more thread of PID 1
		func(cmd *Command) { cmd.TTY = &WinSize{} },
		func(cmd *Command) { cmd.Rlimits = []Rlimit{fewFiles} },
	} {
		cmd := inside("exit 0")
		change(&cmd)
		_, err := r.Start(testContext(t), cmd)
		var start *StartError
		if !errors.As(err, &start) || start.Stage != initproto.StageFork.String() || !errors.Is(err, sbxerr.Processes) {
			t.Fatalf("Start: %v", err)
		}
	}
	var wg sync.WaitGroup
	for _, e := range sleeps {
		wg.Go(func() {
			if err := e.Signal(testContext(t), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if exit, err := e.Wait(testContext(t)); err != nil || exit.Signal != syscall.SIGTERM {
				t.Errorf("%+v, %v", exit, err)
			}
		})
	}
	wg.Wait()
	for range 200 { // each end has PID 1 count what remains
		if _, _, exit := r.run(t, inside("exit 3"), ""); exit.Code != 3 || exit.Remaining == 0 {
			t.Errorf("afterwards: %+v", exit)
		}
	}
	if got := pssKiB(t, r.cmd.Process.Pid); got > 4<<10 {
		t.Errorf("PSS is %d KiB", got)
	}
	if got := threadsOf(t, r.cmd.Process.Pid); got > initThreads {
		t.Errorf("PID 1 has %d threads", got)
	}
}

func threadsOf(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestPID1CountsWhatRemains(t *testing.T) {
	r := runPID1(t)
	count := func(script string) int {
		e, err := r.Start(testContext(t), inside(script))
		if err != nil {
			t.Fatal(err)
		}
		exit, err := e.Wait(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return exit.Remaining
	}
	if got := count("true"); got != 0 {
		t.Errorf("%d remain of none", got)
	}
	other, err := r.Start(testContext(t), inside(`trap 'wait $!; exit' TERM; sleep 100 & wait`))
	if err != nil {
		t.Fatal(err)
	}
	if got := count("true"); got != 0 {
		t.Errorf("%d remain beside another command", got)
	}
	// One in the command's session, one that left it.
	if got := count("sleep 100 & setsid sleep 100 & sleep 0.1"); got != 2 {
		t.Errorf("%d remain of two", got)
	}
	if err := other.Signal(testContext(t), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if exit, err := other.Wait(testContext(t)); err != nil || exit.Remaining != 2 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestPID1MakesHome(t *testing.T) {
	r := runPID1(t)
	// /tmp is the host's here: only a name of the test's own is certain not to be there.
	absent := filepath.Join("/tmp", filepath.Base(tempDir(t))+"-absent")
	for home, want := range map[string]string{
		"/home/agent":       "700\n",
		"/home/deep/er":     "700\n",
		"/home/.." + absent: "",
		absent:              "",
	} {
		cmd := inside(`stat -c %a "$HOME" 2>/dev/null`)
		cmd.Env = append(cmd.Env, "HOME="+home)
		if got, _, _ := r.run(t, cmd, ""); got != want {
			t.Errorf("HOME=%s: %q, want %q", home, got, want)
		}
	}
}

func TestPID1EndsAllWithTheDaemon(t *testing.T) {
	r := runPID1(t)
	out := newPipe(t)
	cmd := inside("setsid sh -c 'trap : TERM HUP; echo ready; while :; do sleep 1; done' & wait")
	cmd.Stdout = out.w
	if _, err := r.Start(testContext(t), cmd); err != nil {
		t.Fatal(err)
	}
	out.w.Close()
	ready := make([]byte, 6)
	if _, err := out.r.Read(ready); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	readAll(t, out.r) // ends only when the last holder of the pipe is gone
	<-r.done
}
