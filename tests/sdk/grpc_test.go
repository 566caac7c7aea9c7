package sdk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// grpcClient calls the daemon with grpc-go, by the names of the proto.
type grpcClient struct{ *grpc.ClientConn }

func dialGRPC(t *testing.T, d *harness.Daemon) grpcClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpcClient{conn}
}

func (c grpcClient) ask(t *testing.T, method string, req, answer proto.Message) {
	t.Helper()
	if err := c.Invoke(t.Context(), "/caisson.v1."+method, req, answer, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// stream opens a server stream.
func (c grpcClient) stream(t *testing.T, ctx context.Context, method string, req proto.Message) grpc.ClientStream {
	t.Helper()
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/caisson.v1."+method, grpc.WaitForReady(true))
	if err == nil {
		err = errors.Join(s.SendMsg(req), s.CloseSend())
	}
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return s
}

// start starts a command in the background and returns its ID.
func (c grpcClient) start(t *testing.T, ref string, spec *caissonv1.ExecSpec) string {
	t.Helper()
	s := c.stream(t, t.Context(), "ExecService/Start", &caissonv1.StartExecRequest{Ref: ref, Exec: spec})
	var event caissonv1.ExecEvent
	if err := s.RecvMsg(&event); err != nil {
		t.Fatal(err)
	}
	return event.GetStarted().GetExec().GetId()
}

// follow reads the output from an offset on, until the stream ends. each may stop it.
func (c grpcClient) follow(t *testing.T, ref, id string, from int64, w io.Writer, each func(at int64) bool) (int64, *caissonv1.Result) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := c.stream(t, ctx, "ExecService/Attach", &caissonv1.AttachExecRequest{Ref: ref, Id: id, StdoutOffset: from})
	for {
		var event caissonv1.ExecEvent
		err := s.RecvMsg(&event)
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Unavailable {
			return from, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if out := event.GetStdout(); out != nil {
			if out.GetOffset() != from || out.GetSkipped() > 0 {
				t.Fatalf("at %d came %d, %d skipped", from, out.GetOffset(), out.GetSkipped())
			}
			_, _ = w.Write(out.GetData()) // into memory
			from += int64(len(out.GetData()))
		}
		if r := event.GetExit(); r != nil {
			return from, r
		}
		if !each(from) {
			return from, nil
		}
	}
}

func always(int64) bool { return true }

// TestGRPC drives a session with grpc-go, over a daemon that is killed in the middle.
func TestGRPC(t *testing.T) {
	d := harness.Start(t)
	c := dialGRPC(t, d)
	var box caissonv1.Sandbox
	c.ask(t, "SandboxService/Create", &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{Name: "grpc"}}, &box)
	id := c.start(t, "grpc", &caissonv1.ExecSpec{
		Shell: "trap 'echo caught' USR1; read a; echo $a; for i in $(seq 2000); do echo line $i; done; read b; " +
			"until [ \"$(stty size)\" = '7 50' ]; do sleep 0.02; done; stty size; echo $b; exit 3", // a size may come after later input
		Stdin: true, Tty: &caissonv1.WinSize{Rows: 5, Cols: 40},
	})
	var sent caissonv1.SendInputResponse
	c.ask(t, "ExecService/SendInput", &caissonv1.SendInputRequest{Ref: "grpc", Id: id, Offset: new(int64), Data: []byte("one\n")}, &sent)
	c.ask(t, "ExecService/SendInput", &caissonv1.SendInputRequest{Ref: "grpc", Id: id, Offset: new(int64), Data: []byte("one\n")}, &sent) // it has that
	var got strings.Builder
	at, _ := c.follow(t, "grpc", id, 0, &got, func(at int64) bool { return at < 5000 })
	d.Kill(t)
	d.Launch(t)
	c.ask(t, "ExecService/Resize", &caissonv1.ResizeExecRequest{Ref: "grpc", Id: id, Size: &caissonv1.WinSize{Rows: 7, Cols: 50}}, &caissonv1.ResizeExecResponse{})
	c.ask(t, "ExecService/SendInput", &caissonv1.SendInputRequest{Ref: "grpc", Id: id, Offset: new(int64(4)), Data: []byte("two\n")}, &sent)
	_, result := c.follow(t, "grpc", id, at, &got, always)
	text := strings.ReplaceAll(got.String(), "\r\n", "\n")
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintln(&lines, "line", i+1)
	}
	if !strings.Contains(text, lines.String()) || !strings.HasSuffix(text, "7 50\ntwo\n") || result.GetExitCode() != 3 {
		t.Errorf("exit code %d after %q", result.GetExitCode(), text[max(0, len(text)-200):])
	}
	err := c.Invoke(t.Context(), "/caisson.v1.SandboxService/Inspect", &caissonv1.InspectRequest{Ref: "absent"}, &caissonv1.InspectResponse{})
	if s := status.Convert(err); s.Code() != codes.NotFound || len(s.Details()) != 1 {
		t.Errorf("an error: %v with details %v", s, s.Details())
	} else if detail, ok := s.Details()[0].(*caissonv1.ErrorDetail); !ok || detail.GetCode() != "SBX-107" || detail.GetRemedy() == "" {
		t.Errorf("an error's detail: %v", s.Details())
	}
	c.ask(t, "SandboxService/Remove", &caissonv1.RemoveRequest{Ref: "grpc", Force: true}, &caissonv1.RemoveResponse{})
}

// TestGRPCHealth asks as the health checks of gRPC's own clients do.
func TestGRPCHealth(t *testing.T) {
	c := healthpb.NewHealthClient(dialGRPC(t, daemon))
	for _, service := range []string{"", "caisson.v1.SandboxService"} {
		answer, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
		if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, answer, err)
		}
	}
	if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "absent"}); status.Code(err) != codes.NotFound {
		t.Errorf("a service that there is not: %v", err)
	}
}

// TestGRPCMuchOutput: half a gigabyte of random bytes comes whole, also to a reader that stops
// and begins again at its offset.
func TestGRPCMuchOutput(t *testing.T) {
	const size = 512 << 20
	c := dialGRPC(t, daemon)
	c.ask(t, "SandboxService/Create", &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{Name: "much-grpc"}}, &caissonv1.Sandbox{})
	t.Cleanup(func() { daemon.Try("rm", "--force", "much-grpc") })
	// The command waits for its first reader, and then for whoever holds the place.
	s := c.stream(t, t.Context(), "ExecService/Start", &caissonv1.StartExecRequest{Ref: "much-grpc", Attach: true, Exec: &caissonv1.ExecSpec{
		Shell: fmt.Sprintf("mkfifo /tmp/p; sha256sum < /tmp/p > /tmp/sum & head -c %d /dev/urandom | tee /tmp/p; wait; cut -c 1-64 /tmp/sum >&2", size),
	}})
	sum, got, stderr := sha256.New(), int64(0), ""
	for {
		var event caissonv1.ExecEvent
		if err := s.RecvMsg(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if out := event.GetStdout(); out != nil {
			if out.GetOffset() != got || out.GetSkipped() > 0 {
				t.Fatalf("at %d came %d, %d skipped", got, out.GetOffset(), out.GetSkipped())
			}
			sum.Write(out.GetData())
			got += int64(len(out.GetData()))
		}
		stderr += string(event.GetStderr().GetData())
	}
	if want := hex.EncodeToString(sum.Sum(nil)) + "\n"; got != size || stderr != want {
		t.Errorf("%d bytes with the sum %s, and the sandbox says %s", got, want, stderr)
	}
}
