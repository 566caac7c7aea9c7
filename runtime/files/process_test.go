package files

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/tests/built"
)

// soon is generous: it only bounds how long a broken test hangs.
const soon = 60 * time.Second

// stranger is the user as which the process runs when the tests are root's: one
// that owns nothing else.
const stranger = 64321

func TestMain(m *testing.M) {
	code := m.Run()
	program.Remove()
	os.Exit(code)
}

var program = built.Program{Name: initproto.BinaryName}

// real starts the real process on this host, as a stranger.
type real struct {
	t       testing.TB
	started atomic.Int64
	running sync.WaitGroup
	mu      sync.Mutex
	last    *exec.Cmd
	why     error // the processes end, where that is known
	uses    atomic.Int64
	using   atomic.Int64
}

// use is a Use.
func (r *real) use() func() {
	r.uses.Add(1)
	r.using.Add(1)
	return func() { r.using.Add(-1) }
}

// start is a Start. Instead of ending a process by force, its stop waits for it:
// a process that does not end by itself fails the test.
func (r *real) start(_ context.Context, args []string, socket *os.File) (Started, error) {
	if want := initproto.Dir + "/" + initproto.BinaryName; args[0] != want {
		r.t.Errorf("the command is %q, want %q", args[0], want)
	}
	cmd := exec.Command(program.Path(r.t), args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = "/", []string{}, socket
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	}
	if err := cmd.Start(); err != nil {
		return Started{}, err
	}
	r.started.Add(1)
	r.running.Add(1)
	r.mu.Lock()
	r.last = cmd
	r.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait(); r.running.Done() }()
	return Started{Stop: func() { r.waitFor(cmd, done) }, Why: func(_ context.Context, err error) error { return cmp.Or(r.why, err) }}, nil
}

func (r *real) waitFor(cmd *exec.Cmd, done <-chan error) {
	select {
	case err := <-done:
		if err != nil && cmd.ProcessState.ExitCode() != -1 { // -1: a test killed it
			r.t.Errorf("the process ended with %v", err)
		}
	case <-time.After(soon):
		r.t.Error("the process does not end with its connection")
		_ = cmd.Process.Kill()
	}
}

// kill kills the process that was started last.
func (r *real) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.last.Process.Kill()
}

// session returns a session of real processes and a directory in which they
// may write.
func session(t testing.TB) (*Session, *real, string) {
	t.Helper()
	r := &real{t: t}
	s := NewSession(r.start, r.use, func(context.Context) int64 { return 1 << 30 }, DefaultLimits())
	t.Cleanup(func() { s.Close(); r.running.Wait() })
	return s, r, sandboxDir(t)
}

// sandboxDir returns an empty directory that the stranger owns and can reach.
func sandboxDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(p string, e os.DirEntry, _ error) error { // opens closed ones
			if e != nil && e.IsDir() {
				return os.Chmod(p, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if os.Getuid() == 0 {
		if err := os.Chown(dir, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// names returns what is in a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// own makes files that a test made as root the stranger's.
func own(t testing.TB, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	if err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, stranger, stranger))
	}); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}
