package ctrd

import (
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// A call that finds the server away is made as often as the configuration says, with
// pauses that double.
func TestAttempts(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		calls.Add(1)
		return status.Error(codes.Unavailable, "away")
	}))
	go server.Serve(l)
	defer server.Stop()
	for attempts, pauses := range map[int]time.Duration{1: 0, 3: 3 * 20 * time.Millisecond} {
		e, err := New(EngineConfig{Address: socket, Namespace: "n", Runc: "/runc", RuncRoot: "/root", Attempts: attempts, Backoff: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		calls.Store(0)
		begin := time.Now()
		err = e.Open(t.Context())
		if n := int(calls.Load()); sbxerr.Of(err) != sbxerr.EngineDown || n != attempts || time.Since(begin) < pauses {
			t.Errorf("%d calls in %v, want %d in at least %v; %v", n, time.Since(begin), attempts, pauses, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
