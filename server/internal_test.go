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

	"github.com/caisson-run/caisson/api/sbxerr"
)

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

func TestCodecRefusesStrangers(t *testing.T) {
	if _, err := (markingJSON{}).Marshal("x"); !errors.Is(err, sbxerr.Internal) {
		t.Errorf("got %v", err)
	}
	if err := (markingJSON{}).Unmarshal(nil, "x"); !errors.Is(err, sbxerr.Internal) {
		t.Errorf("got %v", err)
	}
}

func TestCheckRef(t *testing.T) {
	for ref, ok := range map[string]bool{
		"a": true, "0": true, "a_b.c-d": true, "A": true, strings.Repeat("a", 128): true,
		"": false, "-a": false, ".a": false, "a/b": false, "a\n": false, "ä": false, strings.Repeat("a", 129): false,
	} {
		if err := checkRef("ref", ref); (err == nil) != ok {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// TestLongText checks that no error is longer than anybody reads, whatever is in it.
func TestLongText(t *testing.T) {
	const maxText = 4 << 10 // as in package api
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
