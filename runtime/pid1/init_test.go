package pid1

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/tests/need"
)

func TestInitRunsCommands(t *testing.T) {
	r := runInit(t)
	for script, want := range map[string]Exit{
		"exit 0":        {},
		"exit 1":        {Code: 1},
		"exit 255":      {Code: 255},
		"kill -TERM $$": {Signal: syscall.SIGTERM},
		"kill -KILL $$": {Signal: syscall.SIGKILL},
		"kill -64 $$":   {Signal: 64},
	} {
		if _, _, got := r.run(t, sh(script), ""); got.Code != want.Code || got.Signal != want.Signal {
			t.Errorf("%s: %+v", script, got)
		}
	}
}

func TestInitConnectsStreams(t *testing.T) {
	r := runInit(t)
	stdout, stderr, exit := r.run(t, sh("cat; echo err >&2; exit 3"), "in\n")
	if stdout != "in\n" || stderr != "err\n" || exit.Code != 3 {
		t.Errorf("stdout %q, stderr %q, %+v", stdout, stderr, exit)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	cmd := sh("cat >/dev/null; head -c 1048576 /dev/zero")
	if stdout, _, _ := r.run(t, cmd, big[:1<<15]); len(stdout) != 1<<20 {
		t.Errorf("%d bytes of output", len(stdout))
	}
}

func TestInitGivesNullForAbsentStreams(t *testing.T) {
	r := runInit(t)
	out := newPipe(t)
	cmd := sh(`for i in 0 1 2; do readlink /proc/$$/fd/$i; done >&2; cat; echo lost`)
	cmd.Stderr = out.w
	e, err := r.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	out.w.Close()
	got := strings.Fields(readAll(t, out.r))
	if len(got) != 3 || got[0] != "/dev/null" {
		t.Errorf("streams are %q", got)
	}
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestInitGivesExactlyWhatWasAsked(t *testing.T) {
	r := runInit(t)
	dir := tempDir(t)
	cmd := command("/usr/bin/env", "-0")
	cmd.Env = []string{"B=2", "A=line\nline", "EMPTY="}
	stdout, _, _ := r.run(t, cmd, "")
	if want := "B=2\x00A=line\nline\x00EMPTY=\x00"; stdout != want {
		t.Errorf("the environment is %q, want %q", stdout, want)
	}
	cmd = sh(`pwd; umask; ulimit -Sn; ulimit -Hn; printf '%s|' "$0" "$@"`, "zero", "a b", "", "ü")
	cmd.Cwd = dir
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	stdout, _, _ = r.run(t, cmd, "")
	lines := strings.Split(stdout, "\n")
	if len(lines) != 5 || lines[0] != dir || lines[4] != "zero|a b||ü|" || lines[3] != fmt.Sprint(limit.Max) {
		t.Errorf("output is %q", stdout)
	}
}

// The Go runtime raises its own soft limit of open files; commands must get
// what the OCI runtime set (some loop over all of it, others use select(2)).
func TestInitPassesLimitsAndUmask(t *testing.T) {
	cmd := exec.Command("sh", "-c", "umask 027; ulimit -Sn 512; exec "+program.Path(t))
	r := runInitWith(t, tempDir(t), os.Getuid(), os.Getgid(), cmd)
	stdout, _, _ := r.run(t, sh("ulimit -Sn; umask"), "")
	if stdout != "512\n0027\n" {
		t.Errorf("limit and umask are %q", stdout)
	}
}

func TestInitLeavesCommandsNothingElse(t *testing.T) {
	// As the OCI runtime might, leave a descriptor open and signals ignored.
	cmd := exec.Command("sh", "-c", "trap '' HUP PIPE TERM USR1; exec "+program.Path(t)+" 7</etc/passwd")
	r := runInitWith(t, tempDir(t), os.Getuid(), os.Getgid(), cmd)
	// Without a shell, which changes signals and descriptors for a moment. The
	// fourth descriptor is the directory that ls reads.
	if stdout, stderr, _ := r.run(t, command("ls", "/proc/self/fd"), ""); stdout != "0\n1\n2\n3\n" {
		t.Errorf("descriptors are %q %s", stdout, stderr)
	}
	stdout, _, _ := r.run(t, command("cat", "/proc/self/status"), "")
	for _, field := range []string{"SigBlk", "SigIgn", "SigPnd", "ShdPnd"} {
		if !strings.Contains(stdout, field+":\t0000000000000000\n") {
			t.Errorf("%s is not empty:\n%s", field, stdout)
		}
	}
}

func TestInitMakesASessionPerCommand(t *testing.T) {
	r := runInit(t)
	stdout, _, _ := r.run(t, sh("cat /proc/$$/stat"), "")
	fields := strings.Fields(stdout)
	if len(fields) < 6 || fields[0] != fields[4] || fields[0] != fields[5] {
		t.Errorf("pid, process group and session differ: %q", stdout)
	}
}

func TestInitReportsUsage(t *testing.T) {
	r := runInit(t)
	_, _, exit := r.run(t, sh("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; cat /proc/self/status | cat >/dev/null"), "")
	if cpu := exit.User + exit.System; cpu < 5*time.Millisecond || cpu > soon {
		t.Errorf("CPU time is %v", cpu)
	}
	if exit.MaxRSSBytes < 500<<10 || exit.MaxRSSBytes > 100<<20 {
		t.Errorf("peak memory is %d bytes", exit.MaxRSSBytes)
	}
	if exit.Remaining != 0 {
		t.Errorf("%d processes remain", exit.Remaining)
	}
}

func TestInitSaysWhyACommandDoesNotStart(t *testing.T) {
	r := runInit(t)
	dir := tempDir(t)
	files := map[string]struct {
		text string
		mode os.FileMode
	}{
		"plain":    {"text", 0o644},
		"garbage":  {"\x7fnot an ELF file", 0o755},
		"orphaned": {"#!/no/such/interpreter\n", 0o755},
		"noscript": {"echo no interpreter line\n", 0o755},
	}
	for name, f := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, cwd string
		stage     initproto.Stage
		errno     syscall.Errno
		code      sbxerr.Code
	}{
		{"absent", "/", initproto.StageLookup, syscall.ENOENT, sbxerr.CommandAbsent},
		{"plain", "/", initproto.StageLookup, syscall.EACCES, sbxerr.NotExecutable},
		{dir + "/absent", "/", initproto.StageExec, syscall.ENOENT, sbxerr.CommandAbsent},
		{dir + "/plain/below", "/", initproto.StageExec, syscall.ENOTDIR, sbxerr.CommandAbsent},
		{dir + "/plain", "/", initproto.StageExec, syscall.EACCES, sbxerr.NotExecutable},
		{dir, "/", initproto.StageExec, syscall.EACCES, sbxerr.NotExecutable},
		{dir + "/garbage", "/", initproto.StageExec, syscall.ENOEXEC, sbxerr.NotExecutable},
		{"noscript", "/", initproto.StageExec, syscall.ENOEXEC, sbxerr.NotExecutable},
		{dir + "/orphaned", "/", initproto.StageExec, syscall.ENOENT, sbxerr.CommandAbsent},
		{"true", dir + "/absent", initproto.StageChdir, syscall.ENOENT, sbxerr.Config},
		{"true", dir + "/plain", initproto.StageChdir, syscall.ENOTDIR, sbxerr.Config},
	} {
		cmd := command(tc.name)
		cmd.Cwd, cmd.Env = tc.cwd, []string{"PATH=/usr/bin:/bin:" + dir}
		_, err := r.Start(testContext(t), cmd)
		wantCode(t, err, tc.code)
		var start *StartError
		if !errors.As(err, &start) || start.Errno != tc.errno || start.Stage != tc.stage.String() {
			t.Errorf("%s in %s: %v, want %s %v", tc.name, tc.cwd, err, tc.stage, tc.errno)
		}
	}
	long := command("true", strings.Repeat("x", 200<<10)) // above MAX_ARG_STRLEN
	_, err := r.Start(testContext(t), long)
	wantCode(t, err, sbxerr.Config)
	if _, _, exit := r.run(t, sh("exit 5"), ""); exit.Code != 5 {
		t.Errorf("afterwards: %+v", exit)
	}
}

func TestInitLooksUpLikeExecvp(t *testing.T) {
	r := runInit(t)
	dir := tempDir(t)
	for _, sub := range []string{"a", "b", "a/prog", "a/other"} { // the first prog is a directory
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "b/prog"), []byte("#!/bin/sh\necho \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, path, cwd, want string }{
		{"prog", dir + "/a:" + dir + "/b", "/", dir + "/b/prog"},
		{"prog", "/absent:" + dir + "/b:/bin", "/", dir + "/b/prog"},
		{"prog", "/absent::/bin", dir + "/b", "./prog"},
		{"prog", "../b", dir + "/a", "../b/prog"},
		{"../b/prog", "", dir + "/a", "../b/prog"},
	} {
		cmd := command(tc.name)
		cmd.Cwd, cmd.Env = tc.cwd, []string{"PATH=" + tc.path, "PATH=/late"}
		if got, _, _ := r.run(t, cmd, ""); strings.TrimSpace(got) != tc.want {
			t.Errorf("%s in PATH %q ran %q, want %q", tc.name, tc.path, got, tc.want)
		}
	}
	if _, _, exit := r.run(t, command("true"), ""); exit.Code != 0 { // without a PATH
		t.Errorf("default PATH: %+v", exit)
	}
}

func TestInitSignalsTheProcessGroup(t *testing.T) {
	r := runInit(t)
	out := newPipe(t)
	cmd := sh(`trap 'echo parent; wait; exit 9' TERM; (trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.01; done) & wait`)
	cmd.Stdout = out.w
	e, err := r.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	out.w.Close()
	ready := make([]byte, 6)
	if _, err := io.ReadFull(out.r, ready); err != nil {
		t.Fatal(err)
	}
	if err := e.Signal(testContext(t), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest := readAll(t, out.r)
	if !strings.Contains(rest, "parent") || !strings.Contains(rest, "child") {
		t.Errorf("signalled were %q", rest)
	}
	if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != 9 {
		t.Errorf("%+v, %v", exit, err)
	}
	wantCode(t, e.Signal(testContext(t), syscall.SIGTERM), sbxerr.State)
}

func TestInitRunsCommandsAtOnce(t *testing.T) {
	r := runInit(t)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			e, err := r.Start(testContext(t), sh(fmt.Sprintf("exit %d", i)))
			if err != nil {
				t.Error(err)
				return
			}
			if exit, err := e.Wait(testContext(t)); err != nil || exit.Code != i {
				t.Errorf("command %d: %+v, %v", i, exit, err)
			}
		})
		wg.Go(func() {
			if _, err := r.Start(testContext(t), command("/absent")); !errors.Is(err, sbxerr.CommandAbsent) {
				t.Errorf("absent command: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestInitExitsWithTheDaemon(t *testing.T) {
	r := runInit(t)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-time.After(soon):
		t.Fatal("caisson-init goes on")
	}
	if code := r.cmd.ProcessState.ExitCode(); code != initproto.ExitLost {
		t.Errorf("exit status %d", code)
	}
}

func TestInitWithoutASocket(t *testing.T) {
	cmd := exec.Command(program.Path(t))
	cmd.Env = []string{initproto.SocketEnv + "=/absent"}
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != initproto.ExitConnect {
		t.Errorf("ended with %v", err)
	}
}

// 1000:1000 to PID 1 are all ids that a sandbox without capabilities has.
func TestInitRefusesOtherUsersWithoutRights(t *testing.T) {
	r := runInit(t)
	cmd := sh("id -u; id -g; id -G")
	cmd.UID, cmd.GID, cmd.Groups = 1234, 1235, []uint32{1236}
	if os.Getuid() == 0 {
		if stdout, _, _ := r.run(t, cmd, ""); stdout != "1234\n1235\n1235 1236\n" {
			t.Errorf("the user is %q", stdout)
		}
		return
	}
	_, err := r.Start(testContext(t), cmd)
	wantCode(t, err, sbxerr.Config)
	if !errors.Is(err, syscall.EPERM) {
		t.Errorf("Start: %v", err)
	}
}

// The order in which groups are named says nothing: the kernel sorts them.
func TestInitComparesGroupsAsSets(t *testing.T) {
	need.Root(t, "sets supplementary groups")
	cmd := exec.Command(program.Path(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{3000, 2000}}}
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	r := runInitWith(t, dir, 1000, 1000, cmd)
	c := sh("id -G")
	c.UID, c.GID, c.Groups = 1000, 1000, []uint32{3000, 2000, 3000}
	if stdout, _, _ := r.run(t, c, ""); stdout != "1000 2000 3000\n" {
		t.Errorf("groups are %q", stdout)
	}
	c.Groups = c.Groups[:1]
	_, err := r.Start(testContext(t), c)
	wantCode(t, err, sbxerr.Config)
}

func TestInitIsSmall(t *testing.T) {
	r := runInit(t)
	env := make([]string, 30)
	for i := range env {
		env[i] = fmt.Sprintf("VARIABLE_%d=%s", i, strings.Repeat("v", 60))
	}
	before := pssKiB(t, r.cmd.Process.Pid)
	for range 300 {
		cmd := sh("exit 0")
		cmd.Env = append(cmd.Env, env...)
		r.run(t, cmd, "")
	}
	after := pssKiB(t, r.cmd.Process.Pid)
	t.Logf("PSS %d KiB at first, %d KiB after 300 commands", before, after)
	if after > 4<<10 {
		t.Errorf("PSS is %d KiB", after)
	}
}
