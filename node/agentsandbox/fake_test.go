package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// host is a sandbox that is none: commands and files are this host's.
type host struct {
	mu      sync.Mutex
	last    int
	running map[string]*exec.Cmd
	sizes   []api.Size
}

func newHost() *host { return &host{running: map[string]*exec.Cmd{}} }

func (h *host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.running)
}

func (h *host) Exec(ctx context.Context, _ string, spec *caissonv1.ExecSpec, rio api.IO) (*caissonv1.Result, error) {
	cmd := exec.Command(spec.Args[0], spec.Args[1:]...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env = spec.Workdir, &syscall.SysProcAttr{Setpgid: true}, os.Environ()
	for name, value := range spec.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	failed, turn := make(chan error, 2), &sync.Mutex{} // one event at a time, as the client has them
	cmd.Stdout, cmd.Stderr = watched{rio.Stdout, failed, turn}, watched{rio.Stderr, failed, turn}
	turn.Lock()
	if rio.Stdin != nil {
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		go func() {
			_, _ = io.Copy(in, rio.Stdin)
			_ = in.Close()
		}()
	}
	h.mu.Lock()
	h.last++
	id := fmt.Sprint("exec", h.last)
	err := cmd.Start()
	if err == nil {
		h.running[id] = cmd
	}
	h.mu.Unlock()
	if err != nil {
		turn.Unlock()
		return nil, sbxerr.New(sbxerr.CommandAbsent, "fake", "%s was not found", spec.Args[0])
	}
	if rio.Started != nil {
		rio.Started(&caissonv1.Started{Exec: &caissonv1.Exec{Id: id}})
	}
	turn.Unlock()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-failed:
		err = sbxerr.Wrap(sbxerr.ClientIO, "fake", fmt.Errorf("write: %w", err))
	}
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	h.mu.Lock()
	delete(h.running, id)
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return &caissonv1.Result{ExitCode: 128 + int32(status.Signal()), Signal: int32(status.Signal())}, nil
	}
	return &caissonv1.Result{ExitCode: int32(status.ExitStatus())}, nil
}

type watched struct {
	io.Writer
	failed chan<- error
	turn   *sync.Mutex
}

func (w watched) Write(p []byte) (int, error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	n, err := w.Writer.Write(p)
	if err != nil {
		select {
		case w.failed <- err:
		default:
		}
	}
	return n, err
}

func (h *host) Kill(_ context.Context, _, id string, signal syscall.Signal, _ bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	cmd := h.running[id]
	if cmd == nil {
		return sbxerr.New(sbxerr.State, "fake", "it has ended")
	}
	return syscall.Kill(-cmd.Process.Pid, signal)
}

func (h *host) Resize(_ context.Context, _, _ string, size api.Size) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sizes = append(h.sizes, size)
	return nil
}

func coded(err error) error {
	for cause, code := range map[error]sbxerr.Code{
		fs.ErrNotExist: sbxerr.FileAbsent, fs.ErrPermission: sbxerr.FileRights, syscall.ENOTEMPTY: sbxerr.FileExists, syscall.EISDIR: sbxerr.FileKind,
	} {
		if errors.Is(err, cause) {
			return sbxerr.Wrap(code, "fake", err)
		}
	}
	return err
}

func (h *host) Stat(_ context.Context, r *caissonv1.StatRequest) (*caissonv1.FileInfo, error) {
	look := os.Lstat
	if r.Follow {
		look = os.Stat
	}
	i, err := look(r.Path)
	if err != nil {
		return nil, coded(err)
	}
	info := &caissonv1.FileInfo{Path: r.Path, Type: "file", SizeBytes: i.Size(), Mode: uint32(i.Mode().Perm()), ModifiedAt: timestamppb.New(i.ModTime())}
	switch {
	case i.IsDir():
		info.Type = "directory"
	case i.Mode()&fs.ModeSymlink != 0:
		info.Type = "symlink"
		info.Link, err = os.Readlink(r.Path)
	}
	return info, err
}

func (h *host) ListDir(ctx context.Context, r *caissonv1.ListDirRequest) (*caissonv1.ListDirResponse, error) {
	names, err := os.ReadDir(r.Path)
	l := &caissonv1.ListDirResponse{Truncated: len(names) > 100}
	for _, n := range names {
		i, err := h.Stat(ctx, &caissonv1.StatRequest{Path: filepath.Join(r.Path, n.Name())})
		if err != nil {
			return nil, err
		}
		i.Path = n.Name()
		l.Files = append(l.Files, i)
	}
	return l, coded(err)
}

func (h *host) ReadFile(ctx context.Context, r *caissonv1.ReadFileRequest, w io.Writer) (*caissonv1.FileInfo, error) {
	f, err := os.Open(r.Path)
	if err != nil {
		return nil, coded(err)
	}
	defer f.Close()
	if _, err := io.Copy(w, io.LimitReader(f, r.Length)); err != nil {
		return nil, err
	}
	return h.Stat(ctx, &caissonv1.StatRequest{Path: r.Path})
}

func (h *host) WriteFile(ctx context.Context, r *caissonv1.WriteFileHeader, content io.Reader) (*caissonv1.FileInfo, error) {
	text, err := io.ReadAll(content)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.ClientIO, "fake", fmt.Errorf("read: %w", err))
	}
	if err := os.MkdirAll(filepath.Dir(r.Path), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(r.Path, text, 0o600); err != nil {
		return nil, coded(err)
	}
	if err := os.Chmod(r.Path, fs.FileMode(*r.Mode)); err != nil {
		return nil, err
	}
	return h.Stat(ctx, &caissonv1.StatRequest{Path: r.Path})
}

func (h *host) RemoveFile(_ context.Context, r *caissonv1.RemoveFileRequest) (*caissonv1.RemoveFileResponse, error) {
	remove := os.Remove
	if r.Recursive {
		remove = os.RemoveAll
	}
	return &caissonv1.RemoveFileResponse{}, coded(remove(r.Path))
}

func anybody(uint16, netip.Addr) bool { return true }

// serve answers as a runtime at an address of this host's loopback until the test ends.
func serve(t *testing.T, runtime, address string) (h *host, s *Set, dir string) {
	t.Helper()
	h, dir = newHost(), t.TempDir()
	s = New(h)
	t.Cleanup(func() {
		s.Close()
		if n := h.count(); n > 0 {
			t.Errorf("%d commands are left", n)
		}
	})
	box := Sandbox{ID: "box", Runtime: runtime, Address: address, Dir: dir, Started: time.Now(), Admits: anybody, Env: func(context.Context) (map[string]string, error) {
		return map[string]string{"SANDBOX_ID": "7", "SANDBOX_TOKEN": "x", "SANDBOX_ApiKey": "x", "OTHER": "x"}, nil
	}}
	if err := s.Follow("pod", []Sandbox{box}); err != nil {
		t.Fatal(err)
	}
	return h, s, dir
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond) // nothing announces what tests wait for
	}
	t.Fatalf("never: %s", what)
}
