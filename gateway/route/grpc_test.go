package route_test

import (
	"context"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	statusof "google.golang.org/grpc/status"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// service answers with the credential that it got: in headers, messages and trailers.
type service struct {
	health.UnimplementedHealthServer
}

func (service) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	got := strings.Join(md.Get("authorization"), "|")
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-got", got))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-end", got))
	if r.Service == "none" {
		return nil, statusof.Error(codes.NotFound, "no service for "+got)
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

// Watch sends three messages.
func (service) Watch(_ *health.HealthCheckRequest, to grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	for i := range 3 {
		if err := to.Send(&health.HealthCheckResponse{Status: health.HealthCheckResponse_ServingStatus(i)}); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond) // so that each comes by itself
	}
	<-to.Context().Done()
	return nil
}

// A client of gRPC works by a route, without TLS and without the credential.
func TestGRPC(t *testing.T) {
	for _, packed := range []bool{false, true} {
		server := grpc.NewServer()
		health.RegisterHealthServer(server, service{})
		up := httptest.NewUnstartedServer(server)
		up.EnableHTTP2 = true
		up.StartTLS()
		t.Cleanup(up.Close)
		f := newFixture(t, up, policy.Route{
			Upstream: "https://example.com", Credential: "key", Paths: []string{"/grpc.health.v1.Health/*"},
			CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})),
		})
		var call []grpc.CallOption
		if packed { // then a server of Go packs its answer too
			call = append(call, grpc.UseCompressor(gzip.Name))
		}
		c, err := grpc.NewClient("passthrough:///"+string(name), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", f.address)
			}), grpc.WithDefaultCallOptions(call...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer mine"), 20*time.Second)
		defer cancel()
		if packed {
			_, err := health.NewHealthClient(c).Check(ctx, &health.HealthCheckRequest{})
			if u := f.use(t); statusof.Code(err) == codes.OK || u.Code != sbxerr.EgressRoute || !strings.Contains(u.Reason, "cannot be looked through") {
				t.Errorf("packed messages: %v, %+v", err, u)
			}
			continue
		}
		var head, end metadata.MD
		_, err = health.NewHealthClient(c).Check(ctx, &health.HealthCheckRequest{}, grpc.Header(&head), grpc.Trailer(&end))
		if want := "Bearer " + stars; err != nil || strings.Join(head.Get("x-got"), "|") != want || strings.Join(end.Get("x-end"), "|") != want {
			t.Errorf("%v, %q, %q", err, head.Get("x-got"), end.Get("x-end"))
		}
		if u := f.use(t); u.Path != "/grpc.health.v1.Health/Check" || u.Credential != "key" || u.Status != 200 {
			t.Errorf("%+v", u)
		}
		_, err = health.NewHealthClient(c).Check(ctx, &health.HealthCheckRequest{Service: "none"})
		if statusof.Code(err) != codes.NotFound || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "no service for Bearer "+stars) {
			t.Errorf("%v", err)
		}
		watching, stop := context.WithCancel(ctx)
		stream, err := health.NewHealthClient(c).Watch(watching, &health.HealthCheckRequest{})
		for i := range 3 {
			r, recvErr := stream.Recv()
			if err != nil || recvErr != nil || int(r.Status) != i {
				t.Fatalf("message %d: %v, %v, %v", i, r, err, recvErr)
			}
		}
		stop()
		if err := c.Invoke(ctx, "/other.Service/Call", &health.HealthCheckRequest{}, &health.HealthCheckResponse{}); statusof.Code(err) != codes.PermissionDenied {
			t.Errorf("outside the route: %v", err)
		}
		if n := f.dialled(); n != 1 {
			t.Errorf("%d connections to the upstream, want 1", n)
		}
	}
}
