package api_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
)

// traffic serves one attempt a call. It breaks off each call but the last.
type traffic struct {
	caissonv1connect.UnimplementedNetworkServiceHandler
	calls, breaks atomic.Int32
}

func (s *traffic) Traffic(_ context.Context, _ *connect.Request[caissonv1.TrafficRequest], stream *connect.ServerStream[caissonv1.TrafficResponse]) error {
	n := s.calls.Add(1)
	if n == 1 || n > s.breaks.Load() {
		if err := stream.Send(&caissonv1.TrafficResponse{Kind: "dns"}); err != nil {
			return err
		}
	}
	if n <= s.breaks.Load() {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// However many attempts break while the daemon is away, one gap is told.
func TestOneGapForOneOutage(t *testing.T) {
	for _, breaks := range []int32{0, 1, 4} {
		service := new(traffic)
		service.breaks.Store(breaks)
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle(caissonv1connect.NewNetworkServiceHandler(service))
		srv := &http.Server{Handler: mux}
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Close() })
		kinds := make(map[string]int)
		if err := api.Dial(socket).Traffic(t.Context(), &caissonv1.TrafficRequest{Ref: "box"}, func(r *caissonv1.TrafficResponse) error {
			kinds[r.Kind]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := int(min(breaks, 1)); kinds["gap"] != want || kinds["dns"] != 1+want {
			t.Errorf("%d breaks: %v, want %d gaps", breaks, kinds, want)
		}
	}
}
