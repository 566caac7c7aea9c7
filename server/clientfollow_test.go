package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestSignals: they reach the command, also those that come before it runs or while its
// sandbox is paused.
func TestSignals(t *testing.T) {
	signals := make(chan syscall.Signal, 2)
	taken := make(chan struct{})
	ended := make(chan struct{}, 1)
	var refused atomic.Int32
	wait := func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		signals <- syscall.SIGUSR1
		taken <- struct{}{}
		execStarted(rio)
		select {
		case <-ended:
			return &runtime.Result{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var got []string
	f := &servertest.Fake{
		OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			return wait(ctx, rio)
		},
		OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
			return wait(ctx, rio)
		},
		OnSignal: func(ref, exec string, req runtime.SignalRequest) error {
			if refused.Add(1) <= 2 {
				return sbxerr.New(sbxerr.Paused, "a.b", "paused")
			}
			got = append(got, fmt.Sprintf("%s/%s %d %t", ref, exec, req.Signal, req.All))
			if req.Signal == syscall.SIGTERM {
				ended <- struct{}{}
			}
			return nil
		},
	}
	c := dial(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, call := range []func(api.IO) (*caissonv1.Result, error){
		func(rio api.IO) (*caissonv1.Result, error) {
			return c.Exec(ctx, "name", &caissonv1.ExecSpec{Args: []string{"x"}}, rio)
		},
		func(rio api.IO) (*caissonv1.Result, error) { return c.Run(ctx, command("x"), rio) },
	} {
		got = nil
		refused.Store(0)
		go func() {
			<-taken // the first signal was there before the command ran
			signals <- syscall.SIGTERM
		}()
		if _, err := call(api.IO{Signals: signals}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"id/exec 10 false", "id/exec 15 false"}; !slices.Equal(got, want) {
			t.Errorf("got signals %q, want %q", got, want)
		}
	}
}

// TestConnectionIsKept: one call after the other has the same connection.
func TestConnectionIsKept(t *testing.T) {
	var connections sync.Map
	socket := servertest.Listen(t, &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		execStarted(rio)
		_, err := io.WriteString(rio.Stdout, "x")
		return &runtime.Result{}, err
	}})
	front := counting(t, socket, &connections)
	c := api.Dial(front)
	defer c.Close()
	for range 10 {
		if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: io.Discard}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	connections.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("10 calls took %d connections, want 1", n)
	}
}

// counting listens in front of socket and notes each connection.
func counting(t *testing.T, socket string, connections *sync.Map) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
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
			connections.Store(conn, true)
			to, err := net.Dial("unix", socket)
			if err != nil {
				t.Error(err)
				return
			}
			go func() { _, _ = io.Copy(to, conn); to.Close() }()
			go func() { _, _ = io.Copy(conn, to); conn.Close() }()
		}
	}()
	return l.Addr().String()
}

// TestTooMuchIsRefused has a request that the daemon does not read to its end: the
// caller learns why.
func TestTooMuchIsRefused(t *testing.T) {
	c := dial(t, &servertest.Fake{})
	for range 20 {
		_, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{strings.Repeat("x", 6<<20)}}, api.IO{})
		if sbxerr.Of(err) != sbxerr.APIUsage || !strings.Contains(err.Error(), "larger than configured max") {
			t.Fatalf("got %.200v", err)
		}
	}
}
