package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/server"
	"github.com/caisson-run/caisson/server/servertest"
)

// fakeDaemon is what the test binary is where it is called caissond. Files
// beside it say how it behaves.
func fakeDaemon(args []string) int {
	dir := filepath.Dir(os.Args[0])
	note(filepath.Join(dir, "calls"), strings.Join(args, " ")+" env "+strings.Join(os.Environ(), " "))
	if len(args) > 0 && args[0] == "doctor" {
		fmt.Println(`{"ok":false,"checks":[{"name":"rights","status":"fail","detail":"missing: root","code":"SBX-109","remedy":"be root"}]}`)
		return 1
	}
	if text, err := os.ReadFile(filepath.Join(dir, "fail")); err == nil {
		fmt.Fprint(os.Stderr, string(text))
		return 1
	}
	return serveFake(dir, args)
}

func serveFake(dir string, args []string) int {
	lock, err := os.OpenFile(filepath.Join(dir, "root.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 1
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Fprintln(os.Stderr, "another daemon holds this root [SBX-110]")
		return 1
	}
	time.Sleep(100 * time.Millisecond) // as long as a real one needs, so that callers meet
	l, err := net.Listen("unix", args[slices.Index(args, "--socket")+1])
	if err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a lost one ends by itself
	defer cancel()
	go func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if _, err := os.Stat(dir); err != nil {
				cancel()
			}
		}
	}()
	f := &servertest.Fake{}
	if server.Serve(ctx, l, server.New(server.Deps{Sandboxes: f, System: f}), time.Second) != nil {
		return 1
	}
	return 0
}

func note(file, line string) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

// installation is a directory with caisson and caissond, and the socket that
// the CLI takes for the default one.
type installation struct{ dir, socket string }

func install(t *testing.T) installation {
	t.Helper()
	dir, err := os.MkdirTemp("", "caisson")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // which also ends a fake daemon
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, cli.DaemonName)); err != nil {
		t.Fatal(err)
	}
	return installation{dir, filepath.Join(dir, "run", "caisson.sock")}
}

func (i installation) app(stdout, stderr io.Writer) *cli.App {
	a := cli.NewApp(whole, strings.NewReader(""), stdout, stderr)
	a.LookupEnv = func(string) (string, bool) { return "", false }
	a.Executable = func() (string, error) { return filepath.Join(i.dir, "caisson"), nil }
	a.Euid, a.AutoSocket = 0, i.socket
	a.UnitDirs = func() []string { return []string{filepath.Join(i.dir, "units")} }
	return a
}

func (i installation) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = i.app(&out, &errOut).Run(t.Context(), args)
	return code, out.String(), errOut.String()
}

func (i installation) calls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(i.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func TestAutoStart(t *testing.T) {
	t.Setenv("CAISSON_ROOT", "/not/for/the/daemon")
	i := install(t)
	for range 2 { // the second one finds the daemon of the first
		if code, _, stderr := i.run(t, "run", "--", "x"); code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, stderr)
		}
	}
	want := "--socket " + i.socket + " --idle-timeout 10m env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if calls := i.calls(t); len(calls) != 1 || calls[0] != want {
		t.Errorf("the daemon was started as %q, want once %q", calls, want)
	}
}

// TestAutoStartRace has many first commands at once.
func TestAutoStartRace(t *testing.T) {
	i := install(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if code, _, stderr := i.run(t, "run", "--", "x"); code != 0 {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
		})
	}
	all.Wait()
	if calls := i.calls(t); len(calls) != 1 {
		t.Errorf("the daemon was started %d times", len(calls))
	}
}

// TestAutoStartMeetsDaemon has a daemon that somebody else started, which holds
// the root but does not answer yet: ours leaves, and the client waits.
func TestAutoStartMeetsDaemon(t *testing.T) {
	i := install(t)
	lock, err := os.OpenFile(filepath.Join(i.dir, "root.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := make(chan int, 1)
	go func() {
		code, _, _ := i.run(t, "run", "--", "x")
		done <- code
	}()
	for len(i.calls(t)[0]) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // ours has left by now
	servertest.ListenAt(t, &servertest.Fake{}, i.socket)
	if code := await(t, "exit", done); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAutoStartFails(t *testing.T) {
	i := install(t)
	if err := os.WriteFile(filepath.Join(i.dir, "fail"), []byte("no cgroups here\nat all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	code, _, stderr := i.run(t, "run", "--", "x")
	if code != cli.ExitRuntime || !strings.Contains(stderr, "no cgroups here; at all") || !strings.Contains(stderr, "[SBX-802]") || !strings.Contains(stderr, "caissond.log") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if took := time.Since(began); took > cli.StartTimeout/2 {
		t.Errorf("it took %v to say so", took)
	}
}

func TestAutoStartCancelled(t *testing.T) {
	i := install(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	if code := i.app(&out, &errOut).Run(ctx, []string{"ls"}); code != cli.ExitRuntime || !strings.Contains(errOut.String(), "SBX-002") {
		t.Errorf("exit code %d, stderr %q", code, &errOut)
	}
}

// TestNoAutoStart checks who must start the daemon by hand.
func TestNoAutoStart(t *testing.T) {
	i := install(t)
	tests := map[string]func(*cli.App) []string{
		"another user":      func(a *cli.App) []string { a.Euid = 1000; return []string{"run", "--", "x"} },
		"another socket":    func(*cli.App) []string { return []string{"--socket", i.dir + "/other.sock", "run", "--", "x"} },
		"only the version":  func(*cli.App) []string { return []string{"version", "--daemon"} },
		"no such program":   func(a *cli.App) []string { a.Executable = elsewhere; return []string{"ls"} },
		"unknown own place": func(a *cli.App) []string { a.Executable = nowhere; return []string{"ls"} },
	}
	t.Setenv("PATH", "/nonexistent")
	for name, prepare := range tests {
		var out, errOut bytes.Buffer
		a := i.app(&out, &errOut)
		args := prepare(a)
		code := a.Run(t.Context(), args)
		if code != cli.ExitRuntime || !strings.Contains(errOut.String(), "remedy: ") {
			t.Errorf("%s: exit code %d, stderr %q", name, code, &errOut)
		}
	}
	if calls := i.calls(t); calls[0] != "" {
		t.Errorf("the daemon was started: %q", calls)
	}
}

func elsewhere() (string, error) { return "/nonexistent/caisson", nil }
func nowhere() (string, error)   { return "", errors.New("no /proc") }

func TestDoctorAlone(t *testing.T) {
	i := install(t)
	if code, stdout, _ := i.run(t, "doctor", "--json"); code != 1 || !strings.Contains(stdout, `"detail": "missing: root"`) {
		t.Errorf("exit code %d, %q", code, stdout)
	}
	if code, stdout, _ := i.run(t, "doctor"); code != 1 || !strings.Contains(stdout, "remedy: be root [SBX-109]") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
	t.Setenv("PATH", "/nonexistent")
	os.Remove(filepath.Join(i.dir, cli.DaemonName))
	if code, _, stderr := i.run(t, "doctor"); code != cli.ExitRuntime || !strings.Contains(stderr, "SBX-802") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestDaemonCommand(t *testing.T) {
	i := install(t)
	var path string
	var argv []string
	a := i.app(io.Discard, io.Discard)
	a.Exec = func(p string, args, _ []string) error {
		path, argv = p, args
		return errors.New("exec format error")
	}
	if code := a.Run(t.Context(), []string{"daemon", "--root", "/r", "--help"}); code != cli.ExitRuntime {
		t.Errorf("exit code %d where exec fails", code)
	}
	if path != filepath.Join(i.dir, cli.DaemonName) || strings.Join(argv, " ") != "caissond --root /r --help" {
		t.Errorf("executed %s %q", path, argv)
	}
}

func TestDaemonInPath(t *testing.T) {
	i := install(t)
	t.Setenv("PATH", i.dir)
	a := cli.NewApp(whole, nil, nil, nil)
	a.Executable = elsewhere
	if path, err := a.FindDaemon(); err != nil || path != filepath.Join(i.dir, cli.DaemonName) {
		t.Errorf("got %q, %v", path, err)
	}
}
