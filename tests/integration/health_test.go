package integration

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/caisson-run/caisson/tests/harness"
)

// A watcher with gRPC's own client hears that the engine hangs, that it answers again,
// and that the daemon stops.
func TestHealthWatch(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	conn, err := grpc.NewClient("unix:"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := func(s healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		began := time.Now()
		m, err := w.Recv()
		if err != nil || m.GetStatus() != s {
			t.Fatalf("%v, %v; want %v", m, err, s)
		}
		t.Logf("%v after %s", s, time.Since(began).Round(time.Millisecond))
	}
	want(healthpb.HealthCheckResponse_SERVING)
	engine := containerdOf(t, d)
	harness.Freeze(t, engine)
	t.Cleanup(func() { _ = unix.Kill(engine, unix.SIGCONT) }) // it may have been replaced
	want(healthpb.HealthCheckResponse_NOT_SERVING)
	if err := unix.Kill(engine, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	want(healthpb.HealthCheckResponse_SERVING)
	d.Stop(t)
	want(healthpb.HealthCheckResponse_NOT_SERVING)
	if m, err := w.Recv(); err == nil {
		t.Errorf("after the daemon's end: %v", m)
	}
}
