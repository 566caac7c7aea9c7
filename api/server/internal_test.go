package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

// TestSilentCaller opens a run and never says what to run.
func TestSilentCaller(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, h := caissonv1connect.NewSandboxServiceHandler(sandboxes{startTimeout: 50 * time.Millisecond})
		h.ServeHTTP(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	stream := caissonv1connect.NewSandboxServiceClient(srv.Client(), srv.URL).Run(t.Context())
	defer stream.CloseRequest()
	if err := stream.Send(nil); err != nil { // the headers only
		t.Fatal(err)
	}
	_, err := stream.Receive()
	if err == nil || !strings.Contains(err.Error(), "no first message") {
		t.Errorf("got %v", err)
	}
}

// TestStatus checks that HTTP callers see the status that the table names,
// where Connect knows it.
func TestStatus(t *testing.T) {
	nearest := map[int]int{413: 429, 422: 400, 502: 503}
	for _, row := range sbxerr.All() {
		rec := httptest.NewRecorder()
		w := connect.NewErrorWriter()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", "application/json")
		if err := w.Write(rec, r, fail(sbxerr.New(row.Code, "a.b", "x"))); err != nil {
			t.Fatal(err)
		}
		want := row.HTTP
		if n, ok := nearest[want]; ok {
			want = n
		}
		if rec.Code != want {
			t.Errorf("%s: status %d, want %d", row.Code, rec.Code, want)
		}
	}
	if fail(nil) != nil {
		t.Error("no error became one")
	}
}

func TestFailWithBrokenText(t *testing.T) {
	var err *connect.Error
	if !errors.As(fail(sbxerr.New(sbxerr.Config, "a.b", "bad \xff text")), &err) || len(err.Details()) != 1 || err.Message() != "bad \ufffd text [SBX-101]" {
		t.Errorf("got %v", err)
	}
}

// slowServer serves h with a body timeout of 100 ms.
func slowServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	srv := httptest.NewServer(newIntake(100*time.Millisecond, 0).serve(h))
	t.Cleanup(srv.Close)
	return srv
}

func TestSlowBody(t *testing.T) {
	srv := slowServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%v", err)
	})
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	if !strings.Contains(string(answer), "did not come whole within 100ms") {
		t.Errorf("got %q", answer)
	}
}

// TestSlowHandler checks that the bound on the body is none on the answer.
func TestSlowHandler(t *testing.T) {
	srv := slowServer(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
			t.Error("the call was cancelled by its body's deadline")
		}
		fmt.Fprint(w, "done")
	})
	for range 2 { // the second one on the same connection
		res, err := http.Post(srv.URL, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(answer) != "done" {
			t.Errorf("got %q, %v", answer, err)
		}
	}
}

// TestServeCutsOff has a call that outlives the grace of a daemon that stops.
func TestServeCutsOff(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	running, cut := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(running)
		<-r.Context().Done()
		close(cut)
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, h, 10*time.Millisecond) }()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-running
	cancel()
	<-cut
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestServeFails(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Serve(t.Context(), l, http.NotFoundHandler(), time.Second); err == nil {
		t.Error("a closed listener was served")
	}
}

func TestStdin(t *testing.T) {
	var told int64
	s := newStdin(func(total int64) { told = total })
	s.push(t.Context(), []byte("abc"))
	s.push(t.Context(), []byte("def"))
	s.end()
	s.push(t.Context(), []byte("dropped"))
	p := make([]byte, 4)
	if n, err := s.Read(p); n != 4 || err != nil || string(p) != "abcd" || told != 0 {
		t.Errorf("got %q, %v, told %d", p[:n], err, told)
	}
	if n, err := s.Read(p); n != 2 || err != nil || told != 0 {
		t.Errorf("got %q, %v, told %d: nothing before all of it was passed on", p[:n], err, told)
	}
	if rest, err := io.ReadAll(s); len(rest) != 0 || err != nil || told != 6 {
		t.Errorf("got %q, %v, told %d", rest, err, told)
	}
	if n, err := s.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read: %d, %v", n, err)
	}
}

func TestStdinIsBounded(t *testing.T) {
	s := newStdin(func(int64) {})
	ctx, cancel := context.WithCancel(t.Context())
	s.push(ctx, make([]byte, stdinBuffer))
	pushed := make(chan struct{})
	go func() {
		s.push(ctx, []byte("x"))
		close(pushed)
	}()
	select {
	case <-pushed:
		t.Fatal("the bound does not hold")
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	<-pushed
	if rest, err := io.ReadAll(s); len(rest) > 0 || !errors.Is(err, runtime.ErrInputLeft) {
		t.Errorf("%d bytes of a caller that went away, %v", len(rest), err)
	}
}

// TestStdinTakesOneLargeMessage checks that a message above the bound does not
// wait for ever: it passes when nothing else is there.
func TestStdinTakesOneLargeMessage(t *testing.T) {
	s := newStdin(func(int64) {})
	s.push(t.Context(), make([]byte, 2*stdinBuffer))
	s.end()
	if rest, err := io.ReadAll(s); len(rest) != 2*stdinBuffer || err != nil {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
}

func TestCodecRefusesStrangers(t *testing.T) {
	if _, err := (strictJSON{}).Marshal("x"); !errors.Is(err, sbxerr.Internal) {
		t.Errorf("got %v", err)
	}
	if err := (strictJSON{}).Unmarshal(nil, "x"); !errors.Is(err, sbxerr.Internal) {
		t.Errorf("got %v", err)
	}
}

func TestDefaultOutputLimit(t *testing.T) {
	if api.DefaultOutputLimit != plan.DefaultOutputLimit {
		t.Errorf("the client takes %d for the default, the runtime %d", api.DefaultOutputLimit, plan.DefaultOutputLimit)
	}
}

func TestCheckRef(t *testing.T) {
	for ref, ok := range map[string]bool{
		"a": true, "0": true, "a_b.c-d": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, ".a": false, "A": false, "a/b": false, "a\n": false, "ä": false, strings.Repeat("a", 64): false,
	} {
		if err := checkRef("ref", ref); (err == nil) != ok {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// TestListenPanics: a bug in what reads the caller's messages is for the call to
// end with, and not for the daemon.
func TestListenPanics(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	type message = caissonv1.RunRequest
	c := &conversation[message, message]{receive: func() (*message, error) { panic("bug") }}
	c.cancel = cancel
	done := make(chan struct{})
	go func() { defer close(done); c.listen(ctx) }()
	<-done
	if err := context.Cause(ctx); !errors.Is(err, sbxerr.Internal) || c.bug.Load() == nil || !strings.HasPrefix(*c.bug.Load(), "bug\n") {
		t.Errorf("the call ends with %v", err)
	}
}

// TestLongText checks that no error is longer than anybody reads, whatever is in it.
func TestLongText(t *testing.T) {
	long := errors.New(strings.Repeat("é", 1<<20))
	err := fail(sbxerr.WithRemedy(sbxerr.Config, "x.y", fmt.Errorf("%w: %w", long, long), long.Error()))
	var e *connect.Error
	if !errors.As(err, &e) || len(e.Message()) > 3*maxText {
		t.Errorf("%.100q of %d bytes", err, len(err.Error()))
	}
	if n := len(e.Details()[0].Bytes()); n > 3*maxText {
		t.Errorf("the detail has %d bytes", n)
	}
}
