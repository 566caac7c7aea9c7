package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
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

// between is a socket in front of a daemon's, which counts the connections, and the
// lanes among them, and may spoil these.
type between struct {
	socket string
	conns  atomic.Int32
	lanes  atomic.Int32
	bytes  atomic.Int64 // that came in lanes
	// most is how much comes in a lane before it breaks; less than 0 is all, and
	// 0 refuses it.
	most int64
}

func inFrontOf(t *testing.T, socket string, most int64) *between {
	t.Helper()
	b := &between{socket: filepath.Join(filepath.Dir(socket), "between.sock"), most: most}
	l, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.conns.Add(1)
			go b.pass(conn, socket)
		}
	}()
	return b
}

func (b *between) pass(conn net.Conn, socket string) {
	defer conn.Close()
	daemon, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer daemon.Close()
	r := bufio.NewReader(conn)
	if start, _ := r.Peek(len("GET /lane")); string(start) != "GET /lane" {
		go func() { _, _ = io.Copy(daemon, r); daemon.Close() }()
		_, _ = io.Copy(conn, daemon)
		return
	}
	b.lanes.Add(1)
	if b.most == 0 {
		return
	}
	go func() { _, _ = io.Copy(daemon, r); daemon.Close() }()
	var from io.Reader = daemon
	if b.most > 0 {
		from = io.LimitReader(daemon, b.most)
	}
	_, _ = io.Copy(conn, io.TeeReader(from, b))
}

// Write counts what comes in a lane.
func (b *between) Write(p []byte) (int, error) {
	b.bytes.Add(int64(len(p)))
	return len(p), nil
}

// laneOutput is a text in which every place is different.
func laneOutput(mib int) []byte {
	p := make([]byte, mib<<20)
	for i := 0; i+8 <= len(p); i += 8 {
		copy(p[i:], []byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i), 'l', 'a', 'n', 'e'})
	}
	return p
}

// writeInPieces writes p in pieces of all sizes.
func writeInPieces(w io.Writer, p []byte) error {
	for size := 1; len(p) > 0; size = size*3%700_001 + 1 {
		n := min(size, len(p))
		if _, err := w.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// much is a daemon whose commands write the text to both streams, with a place
// at its half where bytes are left out, and go on at any offset.
func much(text []byte) *servertest.Fake {
	const skipped = 1000
	write := func(w io.Writer, offset int64) error {
		half := int64(len(text) / 2)
		if offset < half {
			if err := writeInPieces(w, text[offset:half]); err != nil {
				return err
			}
			offset = half
		}
		if offset < half+skipped {
			if err := w.(runtime.Skipper).Skip(half + skipped - offset); err != nil {
				return err
			}
			offset = half + skipped
		}
		return writeInPieces(w, text[offset-skipped:])
	}
	both := func(rio runtime.IO, stdout, stderr int64) (*runtime.Result, error) {
		execStarted(rio)
		failed := make(chan error, 1)
		go func() { failed <- write(rio.Stderr, stderr) }()
		err := write(rio.Stdout, stdout)
		return &runtime.Result{ExitCode: 7}, errors.Join(err, <-failed)
	}
	return &servertest.Fake{
		OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
			return both(rio, 0, 0)
		},
		OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			return both(rio, 0, 0)
		},
		OnAttach: func(_ context.Context, _, _ string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			return both(rio, o.StdoutOffset, o.StderrOffset)
		},
		OnLogs: func(_ context.Context, _ string, o runtime.LogOptions, stdout, stderr io.Writer) error {
			started := func(runtime.Info, runtime.ExecInfo) {} // nobody is told
			_, err := both(runtime.IO{Stdout: stdout, Stderr: stderr, Started: started}, o.StdoutOffset, o.StderrOffset)
			return err
		},
	}
}

// TestLane has much output, which comes whole and once: in a lane, where that is
// refused, and where it breaks.
func TestLane(t *testing.T) { withEach(t, testLane) }

func testLane(t *testing.T, o api.Options) {
	text := laneOutput(8)
	marked := string(text[:4<<20]) + api.Mark(1000) + string(text[4<<20:])
	type call func(*api.Client, context.Context, api.IO) (*caissonv1.Result, error)
	exec := func(c *api.Client, ctx context.Context, rio api.IO) (*caissonv1.Result, error) {
		return c.Exec(ctx, "id", &caissonv1.ExecSpec{Args: []string{"x"}}, rio)
	}
	run := func(c *api.Client, ctx context.Context, rio api.IO) (*caissonv1.Result, error) {
		return c.Run(ctx, command("x"), rio)
	}
	logs := func(c *api.Client, ctx context.Context, rio api.IO) (*caissonv1.Result, error) {
		return &caissonv1.Result{ExitCode: 7}, c.Logs(ctx, &caissonv1.LogsRequest{Ref: "id"}, rio.Stdout, rio.Stderr)
	}
	for name, tt := range map[string]struct {
		call  call
		most  int64
		bytes int64 // that must come in the lane
	}{
		"exec":                     {exec, -1, 2 << 20},
		"run":                      {run, -1, 2 << 20},
		"refused":                  {exec, 0, 0},
		"refused to a run":         {run, 0, 0},
		"broken before it is used": {exec, 10, 10},
		"broken in the middle":     {exec, 2 << 20, 2 << 20},
		"logs":                     {logs, -1, 2 << 20},
		"refused to logs":          {logs, 0, 0},
		"broken before logs":       {logs, 10, 10},
		"broken in logs":           {logs, 2 << 20, 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			b := inFrontOf(t, servertest.Listen(t, much(text)), tt.most)
			c := connect(o, b.socket)
			defer c.Close()
			var stdout, stderr bytes.Buffer
			result, err := tt.call(c, t.Context(), api.IO{Stdout: &stdout, Stderr: &stderr})
			if err != nil || result.ExitCode != 7 {
				t.Fatalf("%v, %v", result, err)
			}
			if stdout.String() != marked || stderr.String() != marked {
				t.Errorf("%d and %d bytes came, which are not the %d that were written", stdout.Len(), stderr.Len(), len(marked))
			}
			if n := b.lanes.Load(); n < 1 {
				t.Error("no lane was asked for")
			}
			if n := b.bytes.Load(); n < tt.bytes {
				t.Errorf("%d bytes came in lanes, want %d at least", n, tt.bytes)
			}
		})
	}
}

// TestNoLaneForLittle: most commands cost no other connection.
func TestNoLaneForLittle(t *testing.T) {
	b := inFrontOf(t, servertest.Listen(t, much(laneOutput(1)[:300<<10])), -1)
	c := api.Dial(b.socket)
	defer c.Close()
	if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if n := b.lanes.Load(); n != 0 {
		t.Errorf("%d lanes for 600 KiB", n)
	}
}

// TestBrokenLaneOfRun: a run is not continued, so one that lost output fails.
func TestBrokenLaneOfRun(t *testing.T) {
	b := inFrontOf(t, servertest.Listen(t, much(laneOutput(8))), 2<<20)
	c := api.Dial(b.socket)
	defer c.Close()
	_, err := c.Run(t.Context(), command("x"), api.IO{Stdout: io.Discard, Stderr: io.Discard})
	if !errors.Is(err, sbxerr.APIBroken) && !errors.Is(err, sbxerr.Canceled) { // whoever noticed first
		t.Errorf("got %v", err)
	}
}

// TestLaneSurvivesTheDaemon restarts the daemon while output comes in a lane.
func TestLaneSurvivesTheDaemon(t *testing.T) { withEach(t, testLaneSurvivesTheDaemon) }

func testLaneSurvivesTheDaemon(t *testing.T, o api.Options) {
	text := laneOutput(12)
	d := newRestartable(t, much(text))
	c := connect(o, d.socket)
	defer c.Close()
	out := &breaking{at: []int{4 << 20, 8 << 20}, do: d.restart}
	if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: out, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if want := string(text[:6<<20]) + api.Mark(1000) + string(text[6<<20:]); out.String() != want {
		t.Errorf("%d bytes came, which are not the %d that were written", out.Len(), len(want))
	}
}

// writing is a writer that calls on with all that it was given so far.
type writing struct {
	n  int
	on func(n int) error
}

func (w *writing) Write(p []byte) (int, error) {
	w.n += len(p)
	return len(p), w.on(w.n)
}

// TestLaneEndsWithItsCaller has a caller's writer fail, and a caller cancel, in
// the midst of what a lane brings.
func TestLaneEndsWithItsCaller(t *testing.T) { withEach(t, testLaneEndsWithItsCaller) }

func testLaneEndsWithItsCaller(t *testing.T, o api.Options) {
	for name, tt := range map[string]struct {
		on   func(cancel func()) error
		code sbxerr.Code
	}{
		"its writer fails": {func(func()) error { return io.ErrShortWrite }, sbxerr.ClientIO},
		"it cancels":       {func(cancel func()) error { cancel(); return nil }, sbxerr.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := much(laneOutput(16))
			killed := make(chan runtime.SignalRequest, 1)
			f.OnSignal = func(_, _ string, req runtime.SignalRequest) error { killed <- req; return nil }
			out := &writing{on: func(n int) error {
				if n > 6<<20 {
					return tt.on(cancel)
				}
				return nil
			}}
			_, err := dialWith(t, o, f).Exec(ctx, "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: out})
			if !errors.Is(err, tt.code) {
				t.Errorf("got %v, want %s", err, tt.code)
			}
			await(t, "end of the command", killed)
		})
	}
}

// TestSignalsPassAStuckLane: a caller that does not take its output is heard.
func TestSignalsPassAStuckLane(t *testing.T) { withEach(t, testSignalsPassAStuckLane) }

func testSignalsPassAStuckLane(t *testing.T, o api.Options) {
	heard := make(chan struct{})
	f := &servertest.Fake{
		OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			return &runtime.Result{}, writeInPieces(rio.Stdout, laneOutput(16))
		},
		OnSignal: func(string, string, runtime.SignalRequest) error { close(heard); return nil },
	}
	b := inFrontOf(t, servertest.Listen(t, f), -1)
	c := connect(o, b.socket)
	defer c.Close()
	signals := make(chan syscall.Signal, 1)
	stuck := false
	out := &writing{on: func(n int) error {
		if n > 6<<20 && !stuck {
			stuck = true
			signals <- syscall.SIGINT
			await(t, "signal", heard)
		}
		return nil
	}}
	if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: out, Signals: signals}); err != nil {
		t.Fatal(err)
	}
	if out.n != 16<<20 || b.lanes.Load() != 1 || !stuck {
		t.Errorf("%d bytes came, with %d lanes", out.n, b.lanes.Load())
	}
}

// TestLaneIsLive: what comes late in a lane does not wait for more.
func TestLaneIsLive(t *testing.T) {
	more := make(chan string)
	f := &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		execStarted(rio)
		err := writeInPieces(rio.Stdout, laneOutput(8))
		for line := range more {
			_, err2 := io.WriteString(rio.Stdout, line)
			err = errors.Join(err, err2)
		}
		return &runtime.Result{}, err
	}}
	came := make(chan struct{}, 1)
	out := &writing{on: func(n int) error {
		if n >= 8<<20 {
			came <- struct{}{}
		}
		return nil
	}}
	b := inFrontOf(t, servertest.Listen(t, f), -1)
	c := api.Dial(b.socket)
	defer c.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: out})
		ended <- err
	}()
	await(t, "much", came)
	for deadline := time.Now().Add(5 * time.Second); b.lanes.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // it is opened beside the output
	}
	for range 3 {
		more <- strings.Repeat("line", 3) + "\n"
		await(t, "line", came)
	}
	close(more)
	if err := await(t, "end", ended); err != nil || b.lanes.Load() != 1 {
		t.Errorf("%v, %d lanes", err, b.lanes.Load())
	}
}
