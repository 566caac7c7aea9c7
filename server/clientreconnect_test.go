package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// restartable is a daemon on a socket that a test restarts.
type restartable struct {
	t      *testing.T
	socket string

	mu    sync.Mutex
	fake  *servertest.Fake
	stop  func()
	ended bool
}

// newRestartable returns a daemon that serve starts.
func newRestartable(t *testing.T) *restartable {
	t.Helper()
	dir := filepath.Dir(servertest.Listen(t, &servertest.Fake{}))
	return &restartable{t: t, socket: filepath.Join(dir, "again.sock")}
}

// serve serves f until the test ends.
func (r *restartable) serve(f *servertest.Fake) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fake = f
	r.start()
	r.t.Cleanup(r.end)
}

func (r *restartable) start() { r.stop = servertest.Start(r.t, r.fake, r.socket) }

// restart ends the daemon and starts the next one.
func (r *restartable) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.stop()
	r.start()
}

func (r *restartable) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.stop()
}

// last is what a command counts to. It goes on while nobody listens.
const last = 20000

// piece is how much of its output a daemon passes on before it dies.
const piece = 40_000

// countFrom writes a piece of the count from offset on, and all of the rest
// where that is less. Else it waits for its end.
func countFrom(ctx context.Context, w io.Writer, offset int64) error {
	text := counted()[offset:]
	if _, err := io.WriteString(w, text[:min(piece, len(text))]); err != nil || len(text) <= piece {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func counted() string {
	var b strings.Builder
	for i := range last {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// breaking calls do once, when so many bytes have come.
type breaking struct {
	bytes.Buffer
	at []int
	do func()
}

func (b *breaking) Write(p []byte) (int, error) {
	n, err := b.Buffer.Write(p)
	if len(b.at) > 0 && b.Len() >= b.at[0] {
		b.at = b.at[1:]
		b.do()
	}
	return n, err
}

func execStarted(rio runtime.IO) {
	rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec", SandboxID: "id", State: runtime.ExecRunning})
}

// TestExecSurvivesTheDaemon restarts the daemon again and again while a command
// prints a counter: not a byte is lost, and not one comes twice.
func TestExecSurvivesTheDaemon(t *testing.T) {
	var attached atomic.Int32
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			return &runtime.Result{ExitCode: 7}, countFrom(ctx, rio.Stdout, 0)
		},
		OnAttach: func(ctx context.Context, ref, exec string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			if ref != "id" || exec != "exec" || o.StderrOffset != 0 {
				return nil, fmt.Errorf("attached to %s %s at %v", ref, exec, o)
			}
			attached.Add(1)
			execStarted(rio)
			return &runtime.Result{ExitCode: 7}, countFrom(ctx, rio.Stdout, o.StdoutOffset)
		},
	}
	d := newRestartable(t)
	d.serve(f)
	c := api.Dial(d.socket)
	defer c.Close()
	started := 0
	out := &breaking{at: []int{piece, 2 * piece}, do: d.restart}
	result, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"count"}}, api.IO{
		Stdout: out, Started: func(*caissonv1.Started) { started++ },
	})
	if err != nil || result.ExitCode != 7 || started != 1 {
		t.Fatalf("%v, %v, started %d times", result, err, started)
	}
	if out.String() != counted() {
		t.Errorf("%d bytes came, want %d, each once", out.Len(), len(counted()))
	}
	if attached.Load() != 2 {
		t.Errorf("attached %d times, want 2", attached.Load())
	}
}

// TestSkippedBytesCount breaks off behind a place where bytes are left out: the
// offset counts those.
func TestSkippedBytesCount(t *testing.T) {
	offset := make(chan int64, 1)
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			_, err := io.WriteString(rio.Stdout, "head")
			skipper, ok := rio.Stdout.(runtime.Skipper)
			if !ok {
				return nil, errors.New("the writer is no Skipper")
			}
			err = errors.Join(err, skipper.Skip(1000))
			_, err2 := io.WriteString(rio.Stdout, "tail")
			<-ctx.Done()
			return nil, errors.Join(err, err2, ctx.Err())
		},
		OnAttach: func(_ context.Context, _, _ string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			offset <- o.StdoutOffset
			execStarted(rio)
			_, err := io.WriteString(rio.Stdout, ".")
			return &runtime.Result{}, err
		},
	}
	d := newRestartable(t)
	d.serve(f)
	c := api.Dial(d.socket)
	defer c.Close()
	want := "headtail"
	out := &breaking{at: []int{len(want)}, do: d.restart}
	if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: out}); err != nil {
		t.Fatal(err)
	}
	if out.String() != want+"." {
		t.Errorf("got %q", out.String())
	}
	if n := await(t, "offset", offset); n != 4+1000+4 {
		t.Errorf("attached at %d", n)
	}
}

// TestInputGoesOn restarts the daemon between two parts of the input, and while the
// answer to the second is due: the command has each byte once.
func TestInputGoesOn(t *testing.T) {
	d := newRestartable(t)
	input := servertest.NewInput()
	var parts atomic.Int32
	all := make(chan []byte, 1)
	go func() {
		got, _ := io.ReadAll(input) // what it got is compared
		all <- got
	}()
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			<-ctx.Done() // the next daemon follows it
			return nil, ctx.Err()
		},
		OnAttach: func(ctx context.Context, _, _ string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			select {
			case got := <-all:
				_, err := rio.Stdout.Write(got)
				return &runtime.Result{}, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		OnInput: func(ctx context.Context, ref, exec string, req runtime.InputRequest) (runtime.InputState, error) {
			state, err := input.Send(ctx, ref, exec, req)
			if parts.Add(1) == 2 { // the command has it, and its caller never hears so
				go d.restart()
				<-ctx.Done()
				return state, ctx.Err()
			}
			return state, err
		},
	}
	d.serve(f)
	c := api.Dial(d.socket)
	defer c.Close()
	in, w := io.Pipe()
	go func() {
		for _, line := range []string{"one\n", "two\n", "three\n"} {
			_, _ = io.WriteString(w, line)
		}
		w.Close()
	}()
	restart := func(*caissonv1.Started) { go d.restart() }
	var out bytes.Buffer
	if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"cat"}}, api.IO{Stdin: in, Stdout: &out, Started: restart}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "one\ntwo\nthree\n" {
		t.Errorf("got %q", out.String())
	}
}

// TestAttachedInputIsNotRepeated: others may send input too, so what was on its way when the
// daemon restarted is not sent again.
func TestAttachedInputIsNotRepeated(t *testing.T) {
	d := newRestartable(t)
	var restarts sync.WaitGroup
	f := &servertest.Fake{
		OnAttach: func(ctx context.Context, _, _ string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			<-ctx.Done()
			return nil, ctx.Err()
		},
		OnInput: func(ctx context.Context, _, _ string, req runtime.InputRequest) (runtime.InputState, error) {
			if len(req.Data) > 0 {
				restarts.Go(d.restart)
				<-ctx.Done()
			}
			return runtime.InputState{}, ctx.Err()
		},
	}
	d.serve(f)
	c := api.Dial(d.socket)
	defer c.Close()
	in, w := io.Pipe()
	go io.WriteString(w, "line\n")
	_, err := c.Attach(t.Context(), "id", "exec", api.AttachOptions{}, api.IO{Stdin: in})
	if !errors.Is(err, sbxerr.APIBroken) || !strings.Contains(err.Error(), "5 bytes of input were on their way") || strings.Count(err.Error(), "SBX-803") != 1 {
		t.Errorf("got %v", err)
	}
	w.Close()
	restarts.Wait()
}

// TestReconnectEnds has a daemon that does not come back.
func TestReconnectEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		window time.Duration
		code   sbxerr.Code
	}{"never": {-1, sbxerr.APIBroken}, "for a while": {50 * time.Millisecond, sbxerr.DaemonOff}} {
		t.Run(name, func(t *testing.T) {
			f := &servertest.Fake{OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
				execStarted(rio)
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			d := newRestartable(t)
			d.serve(f)
			c := api.New(api.Options{Socket: d.socket, Reconnect: tt.window})
			defer c.Close()
			_, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{
				Started: func(*caissonv1.Started) { go d.end() },
			})
			if !errors.Is(err, tt.code) {
				t.Errorf("got %v, want %v", err, tt.code)
			}
		})
	}
}

// TestLogsAndWaitsSurviveTheDaemon has both break once.
func TestLogsAndWaitsSurviveTheDaemon(t *testing.T) {
	var waits atomic.Int32
	d := newRestartable(t)
	waiting := func(ctx context.Context) error {
		if waits.Add(1)%2 == 0 {
			return nil
		}
		go d.restart()
		<-ctx.Done()
		return ctx.Err()
	}
	f := &servertest.Fake{
		OnLogs: func(ctx context.Context, _ string, o runtime.LogOptions, stdout, _ io.Writer) error {
			return countFrom(ctx, stdout, o.StdoutOffset)
		},
		OnWait: func(ctx context.Context, ref string) (runtime.Info, error) {
			return runtime.Info{ID: ref}, waiting(ctx)
		},
		OnWaitEx: func(ctx context.Context, _, exec string) (runtime.ExecInfo, error) {
			return runtime.ExecInfo{ID: exec}, waiting(ctx)
		},
	}
	d.serve(f)
	c := api.Dial(d.socket)
	defer c.Close()
	out := &breaking{at: []int{piece, 2 * piece}, do: d.restart}
	if err := c.Logs(t.Context(), &caissonv1.LogsRequest{Ref: "id", StdoutOffset: 2}, out, nil); err != nil || out.String() != counted()[2:] {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
	if s, err := c.Wait(t.Context(), "id"); err != nil || s.Id != "id" {
		t.Errorf("%v, %v", s, err)
	}
	if e, err := c.WaitExec(t.Context(), "id", "exec"); err != nil || e.Id != "exec" || waits.Load() != 4 {
		t.Errorf("%v, %v, %d waits", e, err, waits.Load())
	}
}

// TestExecKillsWithItsCaller has a caller that cancels: nobody will attach.
func TestExecKillsWithItsCaller(t *testing.T) {
	killed := make(chan runtime.SignalRequest, 1)
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			<-ctx.Done()
			return nil, ctx.Err()
		},
		OnSignal: func(_, _ string, req runtime.SignalRequest) error { killed <- req; return nil },
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := dial(t, f).Exec(ctx, "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Started: func(*caissonv1.Started) { cancel() }})
	if !errors.Is(err, sbxerr.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := await(t, "signal", killed); got.Signal != syscall.SIGKILL || !got.All {
		t.Errorf("got %+v", got)
	}
}

// TestWaitSurvivesSecondRestart: each time that the daemon goes away counts anew.
func TestWaitSurvivesSecondRestart(t *testing.T) {
	const window = 1500 * time.Millisecond
	d := newRestartable(t)
	var calls atomic.Int32
	d.serve(&servertest.Fake{OnWaitEx: func(ctx context.Context, _, _ string) (runtime.ExecInfo, error) {
		if calls.Add(1) > 2 {
			return runtime.ExecInfo{ID: "exec", SandboxID: "id", Result: &runtime.Result{ExitCode: 9}}, nil
		}
		time.AfterFunc(window+100*time.Millisecond, d.restart)
		<-ctx.Done()
		return runtime.ExecInfo{}, ctx.Err()
	}})
	c := api.New(api.Options{Socket: d.socket, Reconnect: window})
	defer c.Close()
	e, err := c.WaitExec(t.Context(), "id", "exec")
	if err != nil || e.GetResult().GetExitCode() != 9 {
		t.Errorf("%v, %v after %d calls", e, err, calls.Load())
	}
}
