package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	health "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
)

// system answers Ping.
type system struct {
	caissonv1connect.UnimplementedSystemServiceHandler
}

func (system) Ping(context.Context, *connect.Request[caissonv1.PingRequest]) (*connect.Response[caissonv1.PingResponse], error) {
	return connect.NewResponse(&caissonv1.PingResponse{Ready: true}), nil
}

// execs ends each command with the code that is its name.
type execs struct {
	caissonv1connect.UnimplementedExecServiceHandler
}

func (execs) Start(_ context.Context, req *connect.Request[caissonv1.StartExecRequest], to *connect.ServerStream[caissonv1.ExecEvent]) error {
	var code int32
	if _, err := fmt.Sscan(req.Msg.Exec.Args[0], &code); err != nil {
		return err
	}
	return to.Send(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Finished{Finished: &caissonv1.Finished{
		Result: &caissonv1.Result{ExitCode: code}, Stderr: []byte("it says so")}}})
}

// forward carries a stream to a port of this host, as the daemon does to one of a sandbox.
func forward(w http.ResponseWriter, r *http.Request) {
	to, err := net.Dial("tcp", "127.0.0.1:"+r.PathValue("port"))
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer to.Close()
	c := http.NewResponseController(w)
	_ = c.EnableFullDuplex()
	w.WriteHeader(http.StatusOK)
	_ = c.Flush()
	go func() { _, _ = io.Copy(to, r.Body) }()
	buffer := make([]byte, 4096)
	for {
		n, err := to.Read(buffer)
		_, _ = w.Write(buffer[:n])
		_ = c.Flush()
		if err != nil {
			return
		}
	}
}

func serve(t *testing.T) Daemon {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sandboxes/box/forward/{port}", forward)
	mux.Handle(caissonv1connect.NewSystemServiceHandler(system{}))
	mux.Handle(caissonv1connect.NewExecServiceHandler(execs{}))
	s := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return Daemon{Client: api.Dial(socket)}
}

func portOf(address string) int {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	n, _ := strconv.Atoi(port)
	return n
}

func TestProbe(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/well" || r.Header.Get("X-Probe") != "yes" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(web.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	states, rpc := grpchealth.NewServer(), grpc.NewServer()
	states.SetServingStatus("ill", health.HealthCheckResponse_NOT_SERVING)
	health.RegisterHealthServer(rpc, states)
	go func() { _ = rpc.Serve(l) }()
	t.Cleanup(rpc.Stop)
	d := serve(t)
	exec := func(code string) corev1.ProbeHandler {
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{code}}}
	}
	get := func(path string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(portOf(web.URL)), HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Probe", Value: "yes"}}}}
	}
	call := func(service string) corev1.ProbeHandler {
		return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(portOf(l.Addr().String())), Service: &service}}
	}
	tcp := func(port int) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}
	}
	for name, c := range map[string]struct {
		handler corev1.ProbeHandler
		why     string // empty: healthy
	}{
		"exec": {exec("0"), ""}, "exec fails": {exec("3"), "exit code 3: it says so"},
		"http": {get("well"), ""}, "http fails": {get("/ill"), "503"},
		"grpc": {call(""), ""}, "grpc fails": {call("ill"), "NOT_SERVING"}, "grpc unknown": {call("absent"), "unknown service"},
		"tcp": {tcp(portOf(web.URL)), ""}, "tcp fails": {tcp(1), "502"},
	} {
		healthy, why, err := d.Probe(t.Context(), "box", &corev1.Probe{TimeoutSeconds: 10, ProbeHandler: c.handler})
		if err != nil || healthy != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %t %q, %v", name, healthy, why, err)
		}
	}
}

// TestProbeOfADaemonThatIsAway says nothing about the sandbox.
func TestProbeOfADaemonThatIsAway(t *testing.T) {
	d := Daemon{Client: api.Dial(filepath.Join(t.TempDir(), "absent"))}
	healthy, why, err := d.Probe(t.Context(), "box", &corev1.Probe{TimeoutSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"0"}}}})
	if healthy || why != "" || err == nil {
		t.Errorf("%t %q, %v", healthy, why, err)
	}
}
