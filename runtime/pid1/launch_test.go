package pid1

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

func limited(cmd Command, limits ...Rlimit) Command {
	cmd.Rlimits = limits
	return cmd
}

var fewFiles = Rlimit{unix.RLIMIT_NOFILE, 20, 30}

func placed(cmd Command, place func(ctx context.Context, pid int) error) Command {
	cmd.Place = place
	return cmd
}

func TestRlimitsAreSet(t *testing.T) {
	r := runInit(t)
	cmd := limited(sh("ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Hc; ulimit -Sv"),
		fewFiles, Rlimit{unix.RLIMIT_CORE, 0, 0}, Rlimit{unix.RLIMIT_AS, 1 << 30, math.MaxUint64})
	if stdout, _, exit := r.run(t, cmd, ""); stdout != "20\n30\n0\n0\n1048576\n" || exit.Code != 0 {
		t.Errorf("limits are %q, %+v", stdout, exit)
	}
	if stdout, _, _ := r.run(t, sh("ulimit -Sc"), ""); stdout == "0\n" && coreLimit(t) != 0 {
		t.Error("the limit has become that of all")
	}
}

func coreLimit(t *testing.T) uint64 {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		t.Fatal(err)
	}
	return l.Cur
}

// What a limit does not name is as without a launcher, whose runtime changes
// the soft limit of open files, the signals and the threads.
func TestLaunchedCommandGetsNothingElse(t *testing.T) {
	cmd := exec.Command("sh", "-c", "umask 027; ulimit -Sn 512; exec "+program.Path(t))
	r := runInitWith(t, tempDir(t), os.Getuid(), os.Getgid(), cmd)
	dir := tempDir(t)
	core := Rlimit{unix.RLIMIT_CORE, 0, 0}
	with := limited(sh(`pwd; umask; ulimit -Sn; printf '%s|' "$0" "$@"; cat`, "zero", "a b", "", "ü"), core)
	with.Cwd = dir
	if stdout, _, _ := r.run(t, with, "in"); stdout != dir+"\n0027\n512\nzero|a b||ü|in" {
		t.Errorf("output is %q", stdout)
	}
	env := limited(command("/usr/bin/env", "-0"), core)
	env.Env = []string{"B=2", "GOMAXPROCS=x", "GOGC=1", "GODEBUG=gctrace=1"}
	if stdout, stderr, _ := r.run(t, env, ""); stdout != "B=2\x00GOMAXPROCS=x\x00GOGC=1\x00GODEBUG=gctrace=1\x00" || stderr != "" {
		t.Errorf("the environment is %q, stderr %q", stdout, stderr)
	}
	if stdout, stderr, _ := r.run(t, limited(command("ls", "/proc/self/fd"), core), ""); stdout != "0\n1\n2\n3\n" {
		t.Errorf("descriptors are %q %s", stdout, stderr)
	}
	stdout, _, _ := r.run(t, limited(command("cat", "/proc/self/status", "/proc/self/stat"), core), "")
	for _, field := range []string{"SigBlk", "SigIgn", "SigPnd", "ShdPnd"} {
		if !strings.Contains(stdout, field+":\t0000000000000000\n") {
			t.Errorf("%s is not empty:\n%s", field, stdout)
		}
	}
	fields := strings.Fields(stdout[strings.LastIndexByte(stdout, ')')+1:])
	if fields[2] != fields[3] || !strings.Contains(stdout, "\nPid:\t"+fields[2]+"\n") {
		t.Errorf("pid, group and session differ:\n%s", stdout)
	}
}

func TestLauncherSaysWhy(t *testing.T) {
	r := runPID1(t)
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"garbage": "\x7fnot an ELF file", "orphaned": "#!/no/such/interpreter\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name  string
		limit Rlimit
		stage initproto.Stage
		errno syscall.Errno
		code  sbxerr.Code
	}{
		{"absent", fewFiles, initproto.StageLookup, syscall.ENOENT, sbxerr.CommandAbsent},
		{dir + "/absent", fewFiles, initproto.StageExec, syscall.ENOENT, sbxerr.CommandAbsent},
		{dir, fewFiles, initproto.StageExec, syscall.EACCES, sbxerr.NotExecutable},
		{dir + "/garbage", fewFiles, initproto.StageExec, syscall.ENOEXEC, sbxerr.NotExecutable},
		{dir + "/orphaned", fewFiles, initproto.StageExec, syscall.ENOENT, sbxerr.CommandAbsent},
		{"true", Rlimit{unix.RLIMIT_NPROC, maxTasks, maxTasks + 1}, initproto.StageRlimit, syscall.EPERM, sbxerr.Config},
		{"true", Rlimit{unix.RLIMIT_NOFILE, 1 << 40, 1 << 40}, initproto.StageRlimit, syscall.EPERM, sbxerr.Config},
	} {
		cmd := limited(inside(""), tc.limit)
		cmd.Args = []string{tc.name}
		_, err := r.Start(testContext(t), cmd)
		wantCode(t, err, tc.code)
		var start *StartError
		if !errors.As(err, &start) || start.Errno != tc.errno || start.Stage != tc.stage.String() {
			t.Errorf("%s: %v, want %s %v", tc.name, err, tc.stage, tc.errno)
		}
	}
	if _, _, exit := r.run(t, limited(inside("exit 5"), fewFiles), ""); exit.Code != 5 || exit.Remaining != 0 {
		t.Errorf("afterwards: %+v", exit)
	}
}

// Under its limits the launcher itself has no memory any more.
func TestTightLimits(t *testing.T) {
	r := runInit(t)
	for name, l := range map[string]Rlimit{
		"address space": {unix.RLIMIT_AS, 4096, 4096},
		"data":          {unix.RLIMIT_DATA, 0, 0},
		"stack":         {unix.RLIMIT_STACK, 0, 0},
		"files":         {unix.RLIMIT_NOFILE, 0, 0},
		"file size":     {unix.RLIMIT_FSIZE, 0, 0},
		"CPU":           {unix.RLIMIT_CPU, 0, 0},
		"processes":     {unix.RLIMIT_NPROC, 0, 0},
	} {
		cmd := limited(command(staticTrue()...), l)
		cmd.Args = append(cmd.Args, strings.Repeat("x", 100<<10))
		e, err := r.Start(testContext(t), cmd)
		if err == nil { // then it ends, by itself or by its limit
			_, err = e.Wait(testContext(t))
		} else if start := (*StartError)(nil); errors.As(err, &start) && start.Stage == initproto.StageExec.String() {
			err = nil
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, exit := r.run(t, sh("exit 5"), ""); exit.Code != 5 {
		t.Errorf("afterwards: %+v", exit)
	}
}

func TestPlaceComesBeforeTheCommand(t *testing.T) {
	r := runInit(t)
	mark := filepath.Join(tempDir(t), "mark")
	var seen int
	cmd := placed(sh("echo $$ >"+mark+"; exit 4"), func(_ context.Context, pid int) error {
		seen = pid
		if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the command has run: %v", err)
		}
		if sid, err := unix.Getsid(pid); err != nil || sid != pid {
			t.Errorf("session %d, %v", sid, err)
		}
		// Others are served while this one waits.
		if _, _, exit := r.run(t, sh("exit 3"), ""); exit.Code != 3 {
			t.Errorf("another command: %+v", exit)
		}
		return nil
	})
	for range 3 {
		os.Remove(mark)
		cmd.Number++
		e, err := r.Start(testContext(t), cmd)
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 4 {
			t.Errorf("%+v, %v", exit, err)
		}
		b, err := os.ReadFile(mark)
		if err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(seen) || e.PID != seen {
			t.Errorf("placed was %d, the command %d says %q, %v", seen, e.PID, b, err)
		}
	}
}

func TestPlaceThatFails(t *testing.T) {
	r := runInit(t)
	mark := filepath.Join(tempDir(t), "mark")
	var pid int
	mine := errors.New("no room in the cgroup")
	for _, cause := range []error{mine, sbxerr.Wrap(sbxerr.Cgroup, "test", mine)} {
		c, p := withPipes(t, placed(sh("echo ran >"+mark), func(_ context.Context, got int) error { pid = got; return cause }))
		_, err := r.Start(testContext(t), c)
		p.closeInside()
		want := sbxerr.Internal
		if cause != mine {
			want = sbxerr.Cgroup
		}
		wantCode(t, err, want)
		if !errors.Is(err, mine) {
			t.Errorf("%v hides its cause", err)
		}
		if got := readAll(t, p.out.r); got != "" { // ends: nothing is held
			t.Errorf("output is %q", got)
		}
		settled(t, "processes", 0, func() int {
			if unix.Kill(pid, 0) == nil {
				return 1
			}
			return 0
		})
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command has run: %v", err)
	}
	if r.Err() != nil || len(r.execs) != 0 {
		t.Errorf("the client is left with %v and %d commands", r.Err(), len(r.execs))
	}
}

func TestPlaceOfACancelledStart(t *testing.T) {
	r := runInit(t)
	ctx, cancel := context.WithCancel(testContext(t))
	_, err := r.Start(ctx, placed(sh("exit 0"), func(ctx context.Context, _ int) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v", err)
	}
	_, err = r.Start(ctx, placed(sh("exit 0"), func(context.Context, int) error { t.Error("placed"); return nil }))
	wantCode(t, err, sbxerr.Canceled)
	settled(t, "commands", 0, func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.execs) })
}

// The launcher runs as the command's user, whose other commands may end it.
func TestLauncherThatIsKilled(t *testing.T) {
	r := runInit(t)
	_, err := r.Start(testContext(t), placed(sh("exit 0"), func(_ context.Context, pid int) error {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return err
		}
		for unix.Kill(pid, 0) == nil { // until it is reaped
			time.Sleep(time.Millisecond)
		}
		return nil
	}))
	var start *StartError
	if !errors.As(err, &start) || start.Stage != initproto.StagePlace.String() || start.Errno != syscall.ESRCH {
		t.Errorf("Start: %v", err)
	}
	wantCode(t, err, sbxerr.Init)
	if r.Err() != nil {
		t.Error(r.Err())
	}
}

// A start that waits is undone when its daemon is gone.
func TestPlaceAndTheLossOfTheDaemon(t *testing.T) {
	r := runHeld(t, long)
	mark := filepath.Join(tempDir(t), "mark")
	var pid int
	_, err := r.Start(testContext(t), placed(sh("echo ran >"+mark), func(_ context.Context, got int) error {
		pid = got
		return r.Close()
	}))
	if !errors.Is(err, ErrClosed) {
		t.Errorf("Start: %v", err)
	}
	if held := r.adopt(t, Options{OrphanGrace: long}); len(held) != 0 {
		t.Errorf("held are %+v", held)
	}
	settled(t, "processes", 0, func() int {
		if unix.Kill(pid, 0) == nil {
			return 1
		}
		return 0
	})
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command has run: %v", err)
	}
}

// Where there is no room for the launcher's threads the answer is exact, and
// nothing is written to the command's streams.
func TestPID1LauncherAtTheLimitOfProcesses(t *testing.T) {
	r := runPID1(t)
	var sleeps []*Exec
	var err error
	for err == nil && len(sleeps) < maxTasks {
		var e *Exec
		if e, err = r.Start(testContext(t), inside("exec sleep 100")); err == nil {
			sleeps = append(sleeps, e)
		}
	}
	for len(sleeps) > 0 {
		cmd := limited(inside("exit 3"), fewFiles)
		cmd, p := withPipes(t, cmd)
		e, err := r.Start(testContext(t), cmd)
		p.closeInside()
		if err == nil {
			if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 3 {
				t.Errorf("%+v, %v", exit, err)
			}
			break
		}
		var start *StartError
		if !errors.As(err, &start) || start.Stage != initproto.StageFork.String() || !errors.Is(err, sbxerr.Processes) {
			t.Fatalf("Start: %v", err)
		}
		if got := readAll(t, p.errs.r) + readAll(t, p.out.r); got != "" {
			t.Errorf("output is %q", got)
		}
		last := sleeps[len(sleeps)-1]
		sleeps = sleeps[:len(sleeps)-1]
		if err := last.Signal(testContext(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := last.Wait(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	if len(sleeps) < maxTasks-initThreads-12 {
		t.Errorf("only with %d others was there room", len(sleeps))
	}
}

func TestLaunchersAtOnce(t *testing.T) {
	r := runInit(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			cmd := limited(sh(fmt.Sprintf("exit %d", i)), fewFiles)
			if i%2 == 0 {
				cmd.Place = func(context.Context, int) error { return nil }
			}
			e, err := r.Start(testContext(t), cmd)
			if err != nil {
				t.Error(err)
				return
			}
			if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != i {
				t.Errorf("command %d: %+v, %v", i, exit, err)
			}
		})
	}
	wg.Wait()
}

func TestLaunchedTerminal(t *testing.T) {
	r := runInit(t)
	cmd := limited(sh(`stty size; ulimit -Sn; echo tty >/dev/tty; exit 3`), fewFiles)
	cmd.TTY = &WinSize{Rows: 5, Cols: 6}
	cmd.Place = func(context.Context, int) error { return nil }
	c := startConsole(t, r, cmd)
	if got := c.finish(Exit{Code: 3}); got != "5 6\r\n20\r\ntty\r\n" {
		t.Errorf("shown is %q", got)
	}
}

// The launcher without PID 1 does nothing, and neither does an unknown mode.
func TestModesOfTheBinary(t *testing.T) {
	for args, want := range map[string]int{"launch": initproto.ExitSetup, "other": initproto.ExitUsage} {
		cmd := exec.Command(program.Path(t), args)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != want || len(out) != 0 {
			t.Errorf("%s: %v, %q", args, cmd.ProcessState, out)
		}
	}
}
