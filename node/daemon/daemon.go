// Package daemon is the client of caisson that the node uses.
package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/agentsandbox"
)

// Daemon is a client with what pods need beside its calls.
type Daemon struct {
	*api.Client
	Runtimes *agentsandbox.Set // that have ports of their own; nil: none
}

// Stream is a connection to a port of a pod.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Forward connects to a port of a pod: to that of its runtime where it has one, else to one inside the
// sandbox.
func (d Daemon) Forward(ctx context.Context, ref string, port uint16) (Stream, error) {
	if d.Runtimes != nil {
		if c, ok, err := d.Runtimes.Dial(ref, port); ok {
			return c, err
		}
	}
	return d.Client.Forward(ctx, ref, port)
}

// Probe asks a sandbox as a probe says. why is what an unhealthy one answered, and err why it could
// not be asked.
func (d Daemon) Probe(ctx context.Context, ref string, p *corev1.Probe) (healthy bool, why string, err error) {
	failed := d.ask(ctx, ref, p)
	if failed == nil {
		return true, "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if _, err := d.Ping(ctx); err != nil {
		return false, "", err
	}
	return false, failed.Error(), nil
}

// pingTimeout is how long a daemon is asked whether it is there.
const pingTimeout = 2 * time.Second

func (d Daemon) ask(ctx context.Context, ref string, p *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case p.Exec != nil:
		return d.probeExec(ctx, ref, p)
	case p.HTTPGet != nil:
		return d.probeHTTP(ctx, ref, p.HTTPGet)
	case p.GRPC != nil:
		return d.probeGRPC(ctx, ref, p.GRPC)
	case p.TCPSocket != nil:
		conn, err := d.Forward(ctx, ref, uint16(p.TCPSocket.Port.IntValue()))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return nil
}

func (d Daemon) probeExec(ctx context.Context, ref string, p *corev1.Probe) error {
	limit := int64(4096)
	f, err := d.Output(ctx, ref, &caissonv1.ExecSpec{
		Args: p.Exec.Command, OutputLimitBytes: &limit,
		Timeout: durationpb.New(time.Duration(max(p.TimeoutSeconds, 1)) * time.Second),
	}, nil)
	if err != nil {
		return err
	}
	if code := f.Result.GetExitCode(); code != 0 || f.Result.GetTimedOut() {
		return fmt.Errorf("exit code %d: %s%s", code, f.Stdout, f.Stderr)
	}
	return nil
}

func (d Daemon) probeHTTP(ctx context.Context, ref string, g *corev1.HTTPGetAction) error {
	port := uint16(g.Port.IntValue())
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				f, err := d.Forward(ctx, ref, port)
				if err != nil {
					return nil, err
				}
				return conn{f}, nil
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // as the kubelet: a probe trusts what runs in its pod
		},
	}
	scheme := "http"
	if g.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	path := g.Path
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost:"+strconv.Itoa(int(port))+path, nil)
	if err != nil {
		return err
	}
	for _, h := range g.HTTPHeaders {
		req.Header.Set(h.Name, h.Value)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusOK || res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the answer is %s", res.Status)
	}
	return nil
}

func (d Daemon) probeGRPC(ctx context.Context, ref string, g *corev1.GRPCAction) error {
	client, err := grpc.NewClient("passthrough:///localhost:"+strconv.Itoa(int(g.Port)), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			f, err := d.Forward(ctx, ref, uint16(g.Port))
			if err != nil {
				return nil, err
			}
			return conn{f}, nil
		}))
	if err != nil {
		return err
	}
	defer client.Close()
	req := &health.HealthCheckRequest{}
	if g.Service != nil {
		req.Service = *g.Service
	}
	res, err := health.NewHealthClient(client).Check(ctx, req)
	if err != nil {
		return err
	}
	if res.Status != health.HealthCheckResponse_SERVING {
		return fmt.Errorf("the service is %s", res.Status)
	}
	return nil
}

// conn makes a forwarded stream a net.Conn without deadlines: the context of the probe ends it.
type conn struct{ Stream }

func (conn) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (conn) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (conn) SetDeadline(time.Time) error      { return nil }
func (conn) SetReadDeadline(time.Time) error  { return nil }
func (conn) SetWriteDeadline(time.Time) error { return nil }
