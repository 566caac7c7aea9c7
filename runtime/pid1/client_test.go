package pid1

import (
	"context"
	"errors"
	"os"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

func TestStartSignalExit(t *testing.T) {
	c, f := connect(t)
	e, id := start(t, c, f, 42)
	if e.PID != 42 {
		t.Errorf("PID is %d", e.PID)
	}
	signaled := make(chan error, 1)
	go func() { signaled <- e.Signal(testContext(t), syscall.SIGTERM) }()
	if m := f.recv(); m != (initproto.Signal{Exec: id, Signal: syscall.SIGTERM}) {
		t.Errorf("PID 1 got %#v", m)
	}
	f.send(initproto.Signaled{Exec: id})
	if err := <-signaled; err != nil {
		t.Errorf("Signal: %v", err)
	}
	f.send(initproto.Exited{
		Exec: id, Signal: syscall.SIGTERM, UserMicros: 1500, SystemMicros: 2, MaxRSSKiB: 3, Remaining: 4,
	})
	want := Exit{
		Signal: syscall.SIGTERM, User: 1500 * time.Microsecond, System: 2 * time.Microsecond,
		MaxRSSBytes: 3072, Remaining: 4,
	}
	for range 2 { // a Wait can be repeated
		if got, err := e.Wait(testContext(t)); err != nil || got != want {
			t.Errorf("Wait = %+v, %v; want %+v", got, err, want)
		}
	}
	wantCode(t, e.Signal(testContext(t), syscall.SIGKILL), sbxerr.State)
	for range 2 {
		if err := e.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	if m := f.recv(); m != (initproto.Release{Exec: id}) {
		t.Errorf("PID 1 got %#v", m)
	}
	if n := len(c.execs); n != 0 {
		t.Errorf("%d commands remembered", n)
	}
	if err := c.Err(); err != nil {
		t.Errorf("Err is %v", err)
	}
}

func TestStartPassesPayloadAndStreams(t *testing.T) {
	c, f := connect(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd := command("prog", "arg")
	cmd.Env, cmd.Cwd, cmd.Stdout = []string{"A=1"}, "/srv", w
	done := make(chan error, 1)
	go func() { _, err := c.Start(testContext(t), cmd); done <- err }()
	m, fds, err := f.conn.Recv()
	if err != nil {
		t.Fatal(err)
	}
	defer initproto.CloseFDs(fds)
	start := m.(initproto.Start)
	if start.Stdio != initproto.Stdout || len(fds) != 2 {
		t.Fatalf("got %#v with %d descriptors", start, len(fds))
	}
	checkPayload(t, fds[0], cmd)
	flags, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("stdout has flags %x, %v", flags, err)
	}
	f.send(initproto.Started{Exec: start.Exec, PID: 9})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func checkPayload(t *testing.T, fd int, cmd Command) {
	t.Helper()
	b := make([]byte, initproto.MaxPayload)
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := initproto.DecodePayload(b[:n])
	if err != nil || strings.Join(p.Args, " ") != "prog arg" || len(p.Env) != 1 || p.Env[0] != "A=1" ||
		p.Cwd != "/srv" || p.UID != cmd.UID || p.GID != cmd.GID {
		t.Errorf("payload is %+v, %v", p, err)
	}
	if _, err := unix.Pwrite(fd, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("the payload can be written: %v", err)
	}
	if err := unix.Ftruncate(fd, 1<<20); !errors.Is(err, unix.EPERM) {
		t.Errorf("the payload can grow: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("the seals can be changed: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	for _, tc := range []struct {
		stage initproto.Stage
		errno syscall.Errno
		code  sbxerr.Code
		text  string
	}{
		{initproto.StageLookup, syscall.ENOENT, sbxerr.CommandAbsent, `look up "prog": not found in PATH`},
		{initproto.StageLookup, syscall.EACCES, sbxerr.NotExecutable, `look up "prog": permission denied`},
		{initproto.StageExec, syscall.ENOENT, sbxerr.CommandAbsent, `execute "prog": no such file, or its interpreter is absent`},
		{initproto.StageExec, syscall.ENOTDIR, sbxerr.CommandAbsent, `execute "prog": not a directory`},
		{initproto.StageExec, syscall.EACCES, sbxerr.NotExecutable, `execute "prog": permission denied`},
		{initproto.StageExec, syscall.ENOEXEC, sbxerr.NotExecutable, `execute "prog": exec format error`},
		{initproto.StageExec, syscall.E2BIG, sbxerr.Config, `execute "prog": argument list too long`},
		{initproto.StageChdir, syscall.ENOENT, sbxerr.Config, `enter directory "/cwd": no such file or directory`},
		{initproto.StageUser, syscall.EPERM, sbxerr.Config, `take on the user of "prog": operation not permitted`},
		{initproto.StageFork, syscall.EAGAIN, sbxerr.Processes, `fork for "prog": the limit of processes is reached`},
		{initproto.StageFork, syscall.ENOMEM, sbxerr.Limits, `fork for "prog": cannot allocate memory`},
		{initproto.StageStdio, syscall.ENOENT, sbxerr.Init, `open /dev/null for "prog": no such file or directory`},
		{initproto.StageRlimit, syscall.EPERM, sbxerr.Config, `lower the resource limits of "prog": operation not permitted`},
		{initproto.StageTerminal, syscall.ENOSPC, sbxerr.Limits, `make a terminal for "prog": no space left on device`},
		{initproto.StageTerminal, syscall.ENOENT, sbxerr.Init, `make a terminal for "prog": no such file or directory`},
		{initproto.StageHold, syscall.ENOSPC, sbxerr.Limits, `keep in mind "prog": no space left on device`},
		{initproto.StageRequest, syscall.EMFILE, sbxerr.Limits, `read request for "prog": too many open files`},
		{initproto.StagePlace, syscall.ESRCH, sbxerr.Init, `place "prog": no such process`},
		{initproto.StageRequest, syscall.EINVAL, sbxerr.Init, `read request for "prog": invalid argument`},
	} {
		c, f := connect(t)
		done := make(chan error, 1)
		go func() {
			cmd := command("prog")
			cmd.Cwd = "/cwd"
			_, err := c.Start(testContext(t), cmd)
			done <- err
		}()
		m, _ := f.recv().(initproto.Start)
		f.send(initproto.Failed{Exec: m.Exec, Stage: tc.stage, Errno: tc.errno})
		err := <-done
		wantCode(t, err, tc.code)
		var start *StartError
		if !errors.As(err, &start) || start.Errno != tc.errno || start.Stage != tc.stage.String() || start.Error() != tc.text {
			t.Errorf("%s %v: error is %q, want %q", tc.stage, tc.errno, err, tc.text)
		}
		if !errors.Is(err, tc.errno) {
			t.Errorf("%v is not %v", err, tc.errno)
		}
		if c.Err() != nil || len(c.execs) != 0 {
			t.Errorf("the client is left with %v and %d commands", c.Err(), len(c.execs))
		}
	}
}

func TestStartRefusesWhatNoSandboxCouldStart(t *testing.T) {
	c, _ := connect(t)
	for name, tc := range map[string]struct {
		cmd  Command
		want []string
	}{
		"nothing":         {Command{}, []string{"no command", "working directory"}},
		"empty name":      {Command{Args: []string{""}, Cwd: "/"}, []string{"no command"}},
		"NUL":             {Command{Args: []string{"a", "b\x00"}, Env: []string{"K=\x00"}, Cwd: "/"}, []string{"argument 1", `variable "K"`}},
		"environment":     {Command{Args: []string{"a"}, Env: []string{"K", "=v"}, Cwd: "/"}, []string{"not NAME=VALUE"}},
		"relative cwd":    {Command{Args: []string{"a"}, Cwd: "x"}, []string{`"x" is not an absolute path`}},
		"separate stderr": {Command{Args: []string{"a"}, Cwd: "/", TTY: &WinSize{}, Stderr: os.Stderr}, []string{"no separate standard error"}},
		"held without":    {Command{Args: []string{"a"}, Cwd: "/", HeldStdout: os.Stdin}, []string{"stream 1 is to be held but not given"}},
		"rlimits": {
			Command{Args: []string{"a"}, Cwd: "/", Rlimits: []Rlimit{{Resource: 16}, {Resource: -1}, {Resource: 3, Soft: 2, Hard: 1}, {Resource: 3}}},
			[]string{"no resource limit 16", "no resource limit -1", "soft limit 2 is above the hard limit 1", "limit 3 is given twice"},
		},
		"payload too long": {Command{Args: []string{"a", strings.Repeat("x", 1<<20)}, Cwd: "/"}, []string{"exceed 1048576 bytes"}},
	} {
		_, err := c.Start(testContext(t), tc.cmd)
		wantCode(t, err, sbxerr.Config)
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
	if _, err := c.Start(testContext(t), Command{Args: []string{"a"}, Env: []string{"secret"}, Cwd: "/"}); strings.Contains(err.Error(), "secret") {
		t.Errorf("%v shows the environment", err)
	}
	if len(c.execs) != 0 {
		t.Errorf("%d commands remembered", len(c.execs))
	}
}

func TestStartOfAClosedStream(t *testing.T) {
	c, _ := connect(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	cmd := command("true")
	cmd.Stdout = w
	_, err = c.Start(testContext(t), cmd)
	wantCode(t, err, sbxerr.Internal)
	if c.Err() != nil || len(c.execs) != 0 {
		t.Errorf("the client is left with %v and %d commands", c.Err(), len(c.execs))
	}
}

// The last word of a PID 1 counts even if it ends with messages unread, which
// makes the kernel report an error before that word.
func TestExitIsReadAfterReset(t *testing.T) {
	c, f := connectShort(t, soon)
	e, id := start(t, c, f, 2)
	go e.Signal(testContext(t), syscall.SIGTERM)
	var n int
	for n == 0 { // until the signal lies in the queue, which is never read
		var err error
		if n, err = unix.IoctlGetInt(f.fd, unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}
	f.send(initproto.Exited{Exec: id, Code: 3})
	f.close()
	if got, err := e.Wait(testContext(t)); err != nil || got.Code != 3 {
		t.Errorf("Wait = %+v, %v", got, err)
	}
	wantEnd(t, c, ErrLost)
}

func TestLostInit(t *testing.T) {
	c, f := connect(t)
	e, _ := start(t, c, f, 2)
	f.close()
	wantEnd(t, c, ErrLost)
	_, err := e.Wait(testContext(t))
	wantInit(t, err, ErrLost)
	wantInit(t, e.Signal(testContext(t), syscall.SIGTERM), ErrLost)
	_, err = c.Start(testContext(t), command("true"))
	wantInit(t, err, ErrLost)
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestClose(t *testing.T) {
	c, f := connect(t)
	e, _ := start(t, c, f, 2)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	<-c.Done()
	_, err := e.Wait(testContext(t))
	if !errors.Is(err, ErrClosed) || !errors.Is(err, sbxerr.State) {
		t.Errorf("Wait: %v", err)
	}
	if _, _, err := f.conn.Recv(); err != initproto.ErrClosed {
		t.Errorf("PID 1 sees %v", err)
	}
}

func TestWaitIsBoundedByItsContext(t *testing.T) {
	c, f := connect(t)
	e, _ := start(t, c, f, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("caller gone")
	cancel(gone)
	_, err := e.Wait(ctx)
	wantCode(t, err, sbxerr.Canceled)
	if !errors.Is(err, gone) {
		t.Errorf("%v hides its cause", err)
	}
	expired, cancelExpired := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancelExpired()
	_, err = e.Wait(expired)
	wantCode(t, err, sbxerr.Deadline)
	if c.Err() != nil {
		t.Errorf("the client ended: %v", c.Err())
	}
}

func TestCancelledStartIsKilled(t *testing.T) {
	c, f := connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := c.Start(ctx, command("true")); done <- err }()
	m, _ := f.recv().(initproto.Start)
	cancel()
	wantCode(t, <-done, sbxerr.Canceled)
	f.send(initproto.Started{Exec: m.Exec, PID: 5})
	if got := f.recv(); got != (initproto.Signal{Exec: m.Exec, Signal: syscall.SIGKILL}) {
		t.Errorf("PID 1 got %#v", got)
	}
	f.send(initproto.Signaled{Exec: m.Exec}, initproto.Exited{Exec: m.Exec, Signal: syscall.SIGKILL})
	if got := f.recv(); got != (initproto.Release{Exec: m.Exec}) {
		t.Errorf("PID 1 got %#v", got)
	}
	e, id := start(t, c, f, 6) // the connection still serves
	f.send(initproto.Exited{Exec: id})
	if _, err := e.Wait(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestSignalRefusals(t *testing.T) {
	c, f := connect(t)
	e, id := start(t, c, f, 2)
	for _, sig := range []syscall.Signal{-1, 0, 65} {
		wantCode(t, e.Signal(testContext(t), sig), sbxerr.Config)
	}
	done := make(chan error, 1)
	go func() { done <- e.Signal(testContext(t), syscall.SIGTERM) }()
	f.recv()
	f.send(initproto.Exited{Exec: id}, initproto.Signaled{Exec: id, Errno: syscall.ESRCH})
	if err := <-done; !errors.Is(err, sbxerr.State) || !errors.Is(err, syscall.ESRCH) {
		t.Errorf("Signal of an ended command: %v", err)
	}
	if err := e.Release(); c.Err() != nil || err != nil || len(c.execs) != 0 {
		t.Errorf("the client is left with %v, %v and %d commands", err, c.Err(), len(c.execs))
	}
}

// One Signal is on its way at a time; a caller that waits for its turn can
// give up, and one that gave up does not confuse the next.
func TestSignalsTakeTurns(t *testing.T) {
	c, f := connect(t)
	e, id := start(t, c, f, 2)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- e.Signal(ctx, syscall.SIGHUP) }()
	f.recv()
	short, cancelShort := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancelShort()
	wantCode(t, e.Signal(short, syscall.SIGINT), sbxerr.Deadline)
	cancel()
	wantCode(t, <-first, sbxerr.Canceled)
	third := make(chan error, 1)
	go func() { third <- e.Signal(testContext(t), syscall.SIGTERM) }()
	f.send(initproto.Signaled{Exec: id, Errno: syscall.EPERM}) // of the first
	if m := f.recv(); m != (initproto.Signal{Exec: id, Signal: syscall.SIGTERM}) {
		t.Errorf("PID 1 got %#v", m)
	}
	f.send(initproto.Signaled{Exec: id})
	if err := <-third; err != nil {
		t.Errorf("the answer to another signal was taken: %v", err)
	}
}

func TestNothingLeaks(t *testing.T) {
	connect := func() {
		dir := tempDir(t)
		l := listenIn(t, dir)
		f := dialFake(t, dir)
		f.send(initproto.Hello{Version: initproto.Version, PID: 1})
		c, _, err := l.Accept(t.Context(), os.Getpid(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.recv()
		start(t, c, f, 2)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		f.close()
	}
	connect() // whatever the Go runtime keeps it has then
	goroutines, fds := goruntime.NumGoroutine(), openFDs()
	for range 20 {
		connect()
	}
	settled(t, "goroutines", goroutines, goruntime.NumGoroutine)
	settled(t, "descriptors", fds, openFDs)
}
