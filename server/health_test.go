package server_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestHealth: the health service of gRPC says what Ping says, of the whole and of each
// service.
func TestHealth(t *testing.T) {
	well := &servertest.Fake{}
	ill := &servertest.Fake{OnReady: func() error { return sbxerr.New(sbxerr.EngineDown, "a.b", "x") }}
	const check = "/grpc.health.v1.Health/Check"
	for _, c := range []struct {
		of      *servertest.Fake
		service string
		status  int
		answer  string
	}{
		{well, "", http.StatusOK, "SERVING"},
		{well, "caisson.v1.ExecService", http.StatusOK, "SERVING"},
		{ill, "", http.StatusOK, "NOT_SERVING"},
		{ill, "caisson.v1.ExecService", http.StatusOK, "NOT_SERVING"},
		{well, "caisson.v1.AbsentService", http.StatusNotFound, "SBX-801"},
	} {
		status, answer := post(t, c.of, check, `{"service":"`+c.service+`"}`)
		if status != c.status || !strings.Contains(answer, c.answer) || c.of == well && strings.Contains(answer, "NOT_") {
			t.Errorf("%q: %d %s, want %d %s", c.service, status, answer, c.status, c.answer)
		}
	}
}

// TestHealthWatch: each change reaches every watcher, and many watchers ask the engine
// little more often than one. The end of the daemon comes at once.
func TestHealthWatch(t *testing.T) {
	var ill atomic.Bool
	var asked atomic.Int64
	f := &servertest.Fake{Left: make(chan struct{}), OnReady: func() error {
		asked.Add(1)
		time.Sleep(50 * time.Millisecond) // as an engine takes its time
		if ill.Load() {
			return sbxerr.New(sbxerr.EngineDown, "a.b", "x")
		}
		return nil
	}}
	conn, err := grpc.NewClient("unix:"+servertest.Listen(t, f), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	var watchers []grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
	for range 50 {
		w, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "caisson.v1.ExecService"})
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, w)
	}
	want := func(s healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, w := range watchers {
			if m, err := w.Recv(); err != nil || m.GetStatus() != s {
				t.Fatalf("%v, %v; want %v", m, err, s)
			}
		}
	}
	want(healthpb.HealthCheckResponse_SERVING)
	asked.Store(0)
	ill.Store(true)
	want(healthpb.HealthCheckResponse_NOT_SERVING)
	ill.Store(false)
	want(healthpb.HealthCheckResponse_SERVING)
	if n := asked.Load(); n > 50 {
		t.Errorf("the engine was asked %d times for two changes and 50 watchers", n)
	}
	ill.Store(true)
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond))) // just after a look
	want(healthpb.HealthCheckResponse_NOT_SERVING)
	ill.Store(false)
	began := time.Now()
	close(f.Left)
	want(healthpb.HealthCheckResponse_SERVING)
	if took := time.Since(began); took > 400*time.Millisecond {
		t.Errorf("the end of the daemon came after %s", took)
	}
	absent, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "absent"})
	if err == nil {
		_, err = absent.Recv()
	}
	if status.Code(err) != codes.NotFound {
		t.Errorf("a service that there is not: %v", err)
	}
}
