package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/peer"
)

// A caller over HTTP/1.1 that closes its side after its request keeps its call, hears the
// answer and then the end. One that is gone does not.
func TestHalfCloseOfHTTP1(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	begun, answer, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, Identify(l.(*net.UnixListener), func(peer.Caller) error { return nil }), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			begun <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-answer:
				fmt.Fprint(w, "answered")
			}
			ended <- r.Context().Err()
		}), time.Second)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	call := func(request string) *net.UnixConn {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprint(c, request)
		<-begun
		return c.(*net.UnixConn)
	}
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"} {
		c := call(request)
		_ = c.CloseWrite()
		select {
		case err := <-ended:
			t.Errorf("the call of one that half-closed ended: %v", err)
			_ = c.Close()
			continue
		case <-time.After(100 * time.Millisecond):
			answer <- struct{}{}
		}
		begin := time.Now()
		text, err := io.ReadAll(c) // up to the end, which the server makes
		if err != nil || !strings.HasSuffix(string(text), "answered") || time.Since(begin) > 5*time.Second {
			t.Errorf("%q, %v after %v", text, err, time.Since(begin))
		}
		if err := <-ended; err != nil {
			t.Errorf("an answered call: %v", err)
		}
		_ = c.Close()

		for _, half := range []bool{false, true} {
			c := call(request)
			if half {
				_ = c.CloseWrite()
				time.Sleep(50 * time.Millisecond) // the server sees the one end before the other
			}
			_ = c.Close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("a call without a caller was answered")
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("the call of one that is gone goes on, half closed before %v", half)
			}
		}
	}
}
