package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

func TestRun(t *testing.T) {
	input := servertest.NewInput()
	f := &servertest.Fake{OnInput: input.Send, OnRun: func(_ context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "id", Name: "name"}, runtime.ExecInfo{ID: "exec", SandboxID: "id"})
		in, err := io.ReadAll(input)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(rio.Stdout, "%s got %s", req.Exec.Args[0], in)
		fmt.Fprint(rio.Stderr, "and said so")
		return &runtime.Result{ExitCode: 3, SandboxID: "id"}, nil
	}}
	var stdout, stderr bytes.Buffer
	var started string
	spec := command("cat")
	result, err := dial(t, f).Run(t.Context(), spec, api.IO{
		Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr,
		Started: func(s *caissonv1.Started) { started = s.SandboxId + " " + s.Exec.Id },
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 3 || result.GetSandbox().GetId() != "id" {
		t.Errorf("result %v", result)
	}
	if stdout.String() != "cat got input" || stderr.String() != "and said so" || started != "id exec" {
		t.Errorf("stdout %q, stderr %q, started %q", &stdout, &stderr, started)
	}
	if spec.Exec.Stdin {
		t.Error("the caller's spec was changed")
	}
}

func TestRunWithoutStdin(t *testing.T) {
	f := &servertest.Fake{OnRun: func(_ context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
		if req.Exec.Stdin {
			return nil, errors.New("there is a standard input")
		}
		fmt.Fprint(rio.Stdout, "dropped")
		return &runtime.Result{}, nil
	}}
	if _, err := dial(t, f).Run(t.Context(), command("true"), api.IO{}); err != nil {
		t.Error(err)
	}
}

// TestRunCopiesMuch sends more than every buffer on the way holds through a
// command that reads and writes it in odd pieces.
func TestRunCopiesMuch(t *testing.T) {
	input := servertest.NewInput()
	f := &servertest.Fake{OnInput: input.Send, OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		execStarted(rio)
		_, err := io.CopyBuffer(struct{ io.Writer }{rio.Stdout}, struct{ io.Reader }{input}, make([]byte, 100_003))
		return &runtime.Result{}, err
	}}
	want := make([]byte, 9<<20)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	var got bytes.Buffer
	if _, err := dial(t, f).Run(t.Context(), command("cat"), api.IO{Stdin: bytes.NewReader(want), Stdout: &got}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes came back changed or not at all, want %d", got.Len(), len(want))
	}
}

// TestSignalPassesUnreadInput has a caller with endless input, a command that
// reads none of it, and a signal that must be heard all the same.
func TestSignalPassesUnreadInput(t *testing.T) {
	signalled := make(chan syscall.Signal, 1)
	f := &servertest.Fake{
		OnInput: servertest.NewInput().Send,
		OnSignal: func(_, _ string, req runtime.SignalRequest) error {
			signalled <- req.Signal
			return nil
		},
		OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			select {
			case s := <-signalled:
				return &runtime.Result{Signal: int(s)}, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var zeros zeroReader
	signals := make(chan syscall.Signal, 1)
	go func() {
		for before := int64(-1); before != zeros.read.Load(); { // until it does not move any more
			before = zeros.read.Load()
			time.Sleep(100 * time.Millisecond)
		}
		signals <- syscall.SIGINT
	}()
	result, err := dial(t, f).Run(ctx, command("sleep"), api.IO{Stdin: &zeros, Signals: signals})
	if err != nil {
		t.Fatal(err)
	}
	if result.Signal != int32(syscall.SIGINT) {
		t.Errorf("result %v", result)
	}
	if n := zeros.read.Load(); n == 0 || n > 2<<20 { // one part on its way, and the next
		t.Errorf("%d bytes were read for a command that took none", n)
	}
}

type zeroReader struct{ read atomic.Int64 }

func (z *zeroReader) Read(p []byte) (int, error) {
	clear(p)
	z.read.Add(int64(len(p)))
	return len(p), nil
}

// TestRunDoesNotWaitForInput has a command that ends while its caller's input
// stays open and silent.
func TestRunDoesNotWaitForInput(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ended := make(chan error, 1)
	c := dial(t, &servertest.Fake{})
	go func() {
		_, err := c.Run(t.Context(), command("true"), api.IO{Stdin: r})
		ended <- err
	}()
	if err := await(t, "end of the run", ended); err != nil {
		t.Error(err)
	}
}

// TestRunCancelled ends the context while both sides wait for each other.
func TestRunCancelled(t *testing.T) {
	gone := make(chan error, 1)
	f := &servertest.Fake{OnInput: servertest.NewInput().Send, OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		execStarted(rio)
		<-ctx.Done()
		gone <- context.Cause(ctx)
		return nil, ctx.Err()
	}}
	c := dial(t, f)
	for _, in := range []io.Reader{nil, &zeroReader{}} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			_, err := c.Run(ctx, command("sleep"), api.IO{Stdin: in, Started: func(*caissonv1.Started) { close(started) }})
			ended <- err
		}()
		await(t, "start", started)
		time.Sleep(50 * time.Millisecond) // until everybody waits
		cancel()
		if err := await(t, "end of the run", ended); !errors.Is(err, sbxerr.Canceled) {
			t.Errorf("got %v, want %v", err, sbxerr.Canceled)
		}
		await(t, "end of the command", gone)
	}
}

// TestRunEndsWithItsOutput has a caller that cannot write what it gets.
func TestRunEndsWithItsOutput(t *testing.T) {
	gone := make(chan struct{})
	f := &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		fmt.Fprint(rio.Stdout, "x")
		<-ctx.Done()
		close(gone)
		return nil, ctx.Err()
	}}
	broken := failingWriter{syscall.EPIPE}
	_, err := dial(t, f).Run(t.Context(), command("yes"), api.IO{Stdout: broken})
	if !errors.Is(err, syscall.EPIPE) || !errors.Is(err, sbxerr.ClientIO) {
		t.Errorf("got %v", err)
	}
	await(t, "end of the command", gone)
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// TestSlowReader has a caller that does not read: what the command writes
// piles up neither here nor in the daemon, and all of it arrives in the end.
func TestSlowReader(t *testing.T) {
	const total = 48 << 20
	var written atomic.Int64
	f := &servertest.Fake{OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		chunk := make([]byte, 64<<10)
		for written.Load() < total {
			n, err := rio.Stdout.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return nil, err
			}
		}
		return &runtime.Result{StdoutBytes: total}, nil
	}}
	slow := &gatedWriter{open: make(chan struct{})}
	go func() {
		for before := int64(-1); before != written.Load() || before == 0; {
			before = written.Load()
			time.Sleep(100 * time.Millisecond)
		}
		slow.backlog = written.Load()
		close(slow.open)
	}()
	if _, err := dial(t, f).Run(t.Context(), command("yes"), api.IO{Stdout: slow}); err != nil {
		t.Fatal(err)
	}
	if slow.got != total {
		t.Errorf("%d bytes arrived, want %d", slow.got, total)
	}
	if slow.backlog > total/3 {
		t.Errorf("%d bytes were taken from the command while nobody read", slow.backlog)
	}
}

type gatedWriter struct {
	open         chan struct{}
	got, backlog int64
}

func (g *gatedWriter) Write(p []byte) (int, error) {
	<-g.open
	g.got += int64(len(p))
	return len(p), nil
}

func TestRunDetached(t *testing.T) {
	f := &servertest.Fake{OnStart: func(_ context.Context, req plan.Request) (runtime.Info, error) {
		return runtime.Info{ID: "id", Name: req.Create.Name}, nil
	}}
	spec := command("sleep")
	spec.Sandbox = &caissonv1.SandboxSpec{Name: "name"}
	started, err := dial(t, f).RunDetached(t.Context(), spec)
	if err != nil || started.GetSandboxId() != "id" || started.GetSandboxName() != "name" {
		t.Errorf("got %v, %v", started, err)
	}
	_, err = dial(t, &servertest.Fake{}).RunDetached(t.Context(), spec)
	if !errors.Is(err, sbxerr.NotFound) {
		t.Errorf("got %v, want the daemon's refusal", err)
	}
}

// TestUnreadableInput: an input that cannot be read is an error of the call. The command
// must not take a part for the whole.
func TestUnreadableInput(t *testing.T) {
	closed := make(chan struct{}, 1)
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec", SandboxID: "id"})
			<-ctx.Done()
			return nil, ctx.Err()
		},
		OnInput: func(_ context.Context, _, _ string, r runtime.InputRequest) (runtime.InputState, error) {
			if r.Close {
				closed <- struct{}{}
			}
			return runtime.InputState{Offset: int64(len(r.Data))}, nil
		},
	}
	c := api.Dial(servertest.Listen(t, f))
	defer c.Close()
	in := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errors.New("is a directory")))
	_, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"wc"}}, api.IO{Stdin: in})
	if !errors.Is(err, sbxerr.ClientIO) || !strings.Contains(err.Error(), "read the command's input") {
		t.Errorf("got %v", err)
	}
	if len(closed) > 0 {
		t.Error("the input was ended as if it were whole")
	}
}
