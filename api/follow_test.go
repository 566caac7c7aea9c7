package api_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

// TestFollowed: a caller who says no more than its request needs no stream in both
// directions, and others get one. Only such a stream carries signals.
func TestFollowed(t *testing.T) { withEach(t, testFollowed) }

func testFollowed(t *testing.T, o api.Options) {
	var streamed bool
	f := &servertest.Fake{
		OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			streamed = rio.Signals != nil
			return &runtime.Result{}, nil
		},
		OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
			execStarted(rio)
			streamed = rio.Signals != nil
			return &runtime.Result{}, nil
		},
	}
	c := dialWith(t, o, f)
	size := api.Size{Rows: 24, Cols: 80}.Message()
	for name, tt := range map[string]struct {
		spec *caissonv1.ExecSpec
		rio  api.IO
		want bool
	}{
		"no more":         {&caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: io.Discard, Signals: make(chan syscall.Signal)}, false},
		"input":           {&caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdin: strings.NewReader("x")}, true},
		"a terminal":      {&caissonv1.ExecSpec{Args: []string{"x"}, Tty: size}, api.IO{}, true},
		"sizes to follow": {&caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Resizes: make(chan api.Size)}, true},
	} {
		if _, err := c.Exec(t.Context(), "id", tt.spec, tt.rio); err != nil || streamed != tt.want {
			t.Errorf("exec with %s: %v, a stream in both directions: %t", name, err, streamed)
		}
		if _, err := c.Run(t.Context(), &caissonv1.RunSpec{Exec: tt.spec}, tt.rio); err != nil || streamed != tt.want {
			t.Errorf("run with %s: %v, a stream in both directions: %t", name, err, streamed)
		}
	}
}

// TestSignalsOfFollowed: signals reach the command all the same, those too that come
// before it runs or while its sandbox is paused.
func TestSignalsOfFollowed(t *testing.T) { withEach(t, testSignalsOfFollowed) }

func testSignalsOfFollowed(t *testing.T, o api.Options) {
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
	c := dialWith(t, o, f)
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

// TestFollowedConnections: one call after the other has the same connection, unless
// the client is brief.
func TestFollowedConnections(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		execStarted(rio)
		_, err := io.WriteString(rio.Stdout, "x")
		return &runtime.Result{}, err
	}})
	for name, tt := range map[string]struct {
		o    api.Options
		want int32
	}{"kept": {api.Options{}, 1}, "brief": {api.Options{Brief: true}, 10}} {
		t.Run(name, func(t *testing.T) {
			b := inFrontOf(t, socket, -1)
			c := connect(tt.o, b.socket)
			defer c.Close()
			for range 10 {
				if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}}, api.IO{Stdout: io.Discard}); err != nil {
					t.Fatal(err)
				}
			}
			if n := b.conns.Load(); n != tt.want {
				t.Errorf("10 calls took %d connections, want %d", n, tt.want)
			}
		})
	}
}

// TestTooMuchIsRefused has a request that the daemon does not read to its end: the
// caller learns why.
func TestTooMuchIsRefused(t *testing.T) { withEach(t, testTooMuchIsRefused) }

func testTooMuchIsRefused(t *testing.T, o api.Options) {
	c := dialWith(t, o, &servertest.Fake{})
	for range 20 {
		_, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{strings.Repeat("x", 6<<20)}}, api.IO{})
		if sbxerr.Of(err) != sbxerr.APIUsage || !strings.Contains(err.Error(), "larger than configured max") {
			t.Fatalf("got %.200v", err)
		}
	}
}
