package pid1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/tests/built"
	"github.com/caisson-run/caisson/tests/need"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(namespaceEnv); path != "" {
		becomePID1(path)
	}
	code := m.Run()
	program.Remove()
	os.Exit(code)
}

var program = built.Program{Name: initproto.BinaryName}

// realInit is caisson-init as a child of the test.
type realInit struct {
	*Client
	cmd  *exec.Cmd
	dir  string // of its socket, which is uid's and gid's
	uid  int
	gid  int
	done chan struct{} // closed when it has ended; cmd.ProcessState is then set
}

// initThreads is how many tasks PID 1 may take itself from the sandbox's limit of
// processes: those that it makes before it starts a command, and those that the Go
// runtime starts with.
const initThreads = 14

// runInit runs caisson-init without a namespace of its own.
func runInit(t testing.TB) *realInit {
	t.Helper()
	return runInitWith(t, tempDir(t), os.Getuid(), os.Getgid(), exec.Command(program.Path(t)))
}

func runInitWith(t testing.TB, dir string, uid, gid int, cmd *exec.Cmd) *realInit {
	t.Helper()
	return runInitOptions(t, dir, uid, gid, cmd, Options{})
}

func runInitOptions(t testing.TB, dir string, uid, gid int, cmd *exec.Cmd, o Options) *realInit {
	t.Helper()
	l, err := Listen(dir, uid, gid)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd.Env = append(cmd.Env, initproto.SocketEnv+"="+filepath.Join(dir, initproto.SocketName))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &realInit{cmd: cmd, dir: dir, uid: uid, gid: gid, done: make(chan struct{})}
	go func() { cmd.Wait(); close(r.done) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-r.done })
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	go func() { <-r.done; cancel() }()
	if r.Client, _, err = l.Accept(ctx, cmd.Process.Pid, o); err != nil {
		t.Fatalf("%v (%v)", err, cmd.ProcessState)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// run runs cmd and returns its output and how it ended.
func (r *realInit) run(t testing.TB, cmd Command, stdin string) (stdout, stderr string, exit Exit) {
	t.Helper()
	in, out, errs := newPipe(t), newPipe(t), newPipe(t)
	cmd.Number = 1000 + numbers.Add(1)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in.r, out.w, errs.w
	e, err := r.Start(testContext(t), cmd)
	in.r.Close()
	out.w.Close()
	errs.w.Close()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(in.w, stdin)
	in.w.Close()
	stdout, stderr = readAll(t, out.r), readAll(t, errs.r)
	if exit, err = e.Wait(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.Release(); err != nil {
		t.Error(err)
	}
	return stdout, stderr, exit
}

type pipe struct{ r, w *os.File }

func newPipe(t testing.TB) pipe {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return pipe{r, w}
}

func readAll(t testing.TB, f *os.File) string {
	t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// sh is a command with a usual environment.
func sh(script string, args ...string) Command {
	cmd := command(append([]string{"sh", "-c", script}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	return cmd
}

func pssKiB(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if errors.Is(err, fs.ErrPermission) {
		need.Root(t, "caisson-init hides its memory from its own user")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nPss:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
