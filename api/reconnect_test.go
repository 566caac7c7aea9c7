package api_test

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
	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

// restartable is a daemon on a socket, of which one follows the other.
type restartable struct {
	t      *testing.T
	fake   *servertest.Fake
	socket string

	mu     sync.Mutex
	stop   func()
	beside sync.WaitGroup // restarts that a call does not wait for
}

func newRestartable(t *testing.T, f *servertest.Fake) *restartable {
	t.Helper()
	r := &restartable{t: t, fake: f, socket: filepath.Join(filepath.Dir(servertest.Listen(t, f)), "again.sock")}
	r.start()
	t.Cleanup(r.end)
	return r
}

func (r *restartable) start() { r.stop = servertest.Start(r.t, r.fake, r.socket) }

// restart ends the daemon and starts the next one.
func (r *restartable) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	r.start()
}

// restartBeside is restart for who is called by the daemon.
func (r *restartable) restartBeside() { r.beside.Go(r.restart) }

func (r *restartable) end() {
	r.beside.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
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
func TestExecSurvivesTheDaemon(t *testing.T) { withEach(t, testExecSurvivesTheDaemon) }

func testExecSurvivesTheDaemon(t *testing.T, o api.Options) {
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
	d := newRestartable(t, f)
	c := connect(o, d.socket)
	defer c.Close()
	started := 0
	out := &breaking{at: []int{piece, 2 * piece}, do: d.restart}
	result, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"count"}}, api.IO{
		Stdout: out, Started: func(*caissonv1.Exec) { started++ },
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
// offset counts those, and not the mark.
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
	d := newRestartable(t, f)
	c := api.Dial(d.socket)
	defer c.Close()
	want := "head" + api.Mark(1000) + "tail"
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

// TestAcknowledgedInputGoesOn breaks between two lines of input, of which the
// first was taken.
func TestAcknowledgedInputGoesOn(t *testing.T) {
	attached := make(chan struct{})
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			line := make([]byte, 4)
			_, err := io.ReadFull(rio.Stdin, line)
			_, err2 := rio.Stdin.Read(nil) // who reads again has passed on what it read
			_, err3 := rio.Stdout.Write(line)
			<-ctx.Done()
			return nil, errors.Join(err, err2, err3, ctx.Err())
		},
		OnAttach: func(_ context.Context, _, _ string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			close(attached)
			_, err := io.Copy(rio.Stdout, rio.Stdin)
			return &runtime.Result{}, err
		},
	}
	d := newRestartable(t, f)
	c := api.Dial(d.socket)
	defer c.Close()
	in, w := io.Pipe()
	out := &breaking{at: []int{4}, do: func() { // it was acknowledged before
		d.restartBeside()
		go func() {
			<-attached
			_, _ = io.WriteString(w, "two\n")
			w.Close()
		}()
	}}
	go io.WriteString(w, "one\n")
	if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"cat"}}, api.IO{Stdin: in, Stdout: out}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "one\ntwo\n" {
		t.Errorf("got %q", out.String())
	}
}

// TestLostInputIsAnError breaks while input is on its way: it is not sent twice.
func TestLostInputIsAnError(t *testing.T) {
	var d *restartable
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			if _, err := rio.Stdin.Read(make([]byte, 1)); err != nil { // and never again: it is not passed on
				return nil, err
			}
			d.restartBeside()
			<-ctx.Done()
			return nil, ctx.Err()
		},
		OnAttach: func(context.Context, string, string, runtime.AttachOptions, runtime.IO) (*runtime.Result, error) {
			return nil, errors.New("attached")
		},
	}
	d = newRestartable(t, f)
	c := api.Dial(d.socket)
	defer c.Close()
	in, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, "line\n")
	_, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"cat"}}, api.IO{Stdin: in})
	if !errors.Is(err, sbxerr.APIBroken) || !strings.Contains(err.Error(), "5 bytes of input were on their way") || strings.Count(err.Error(), "SBX-803") != 1 {
		t.Errorf("got %v", err)
	}
}

// TestReconnectEnds has a daemon that does not come back.
func TestReconnectEnds(t *testing.T) { withEach(t, testReconnectEnds) }

func testReconnectEnds(t *testing.T, o api.Options) {
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
			d := newRestartable(t, f)
			c := api.New(api.Options{Socket: d.socket, Reconnect: tt.window, Brief: o.Brief})
			defer c.Close()
			_, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{
				Started: func(*caissonv1.Exec) { go d.end() },
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
	var d *restartable
	waiting := func(ctx context.Context) error {
		if waits.Add(1)%2 == 0 {
			return nil
		}
		d.restartBeside()
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
	d = newRestartable(t, f)
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
func TestExecKillsWithItsCaller(t *testing.T) { withEach(t, testExecKillsWithItsCaller) }

func testExecKillsWithItsCaller(t *testing.T, o api.Options) {
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
	_, err := dialWith(t, o, f).Exec(ctx, "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Started: func(*caissonv1.Exec) { cancel() }})
	if !errors.Is(err, sbxerr.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := await(t, "signal", killed); got.Signal != syscall.SIGKILL || !got.All {
		t.Errorf("got %+v", got)
	}
}
