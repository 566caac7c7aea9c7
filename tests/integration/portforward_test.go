package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/forward"
	"github.com/caisson-run/caisson/tests/harness"
)

// echoed starts a server in a sandbox that sends back what comes, one connection after another.
func echoed(t *testing.T, d *harness.Daemon, name string) (job string) {
	t.Helper()
	return strings.TrimSpace(d.Run(t, "exec", "-d", name, "--", "sh", "-c", "while true; do nc -l -p 7000 -e cat; done").Stdout)
}

// dialEcho connects to it once it listens.
func dialEcho(t *testing.T, client *api.Client, name string) *api.Forwarded {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		to, err := client.Forward(t.Context(), name, 7000)
		switch {
		case err == nil:
			t.Cleanup(func() { to.Close() })
			return to
		case !errors.Is(err, sbxerr.PortClosed) || time.Now().After(deadline):
			t.Fatal(err)
		}
	}
}

// TestForward: a port that is not published is reached by its owner through the daemon, with every
// byte and both ends of the stream, and by nobody else.
func TestForward(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	box(t, d, "server")
	client := api.Dial(d.Socket)
	if _, err := client.Forward(t.Context(), "server", 7000); !errors.Is(err, sbxerr.PortClosed) {
		t.Errorf("before anything listens: %v", err)
	}
	echoed(t, d, "server")
	to := dialEcho(t, client, "server")
	if conn, err := net.DialTimeout("tcp", "127.0.0.1:7000", time.Second); err == nil {
		t.Errorf("the host reaches the port by itself: %s", conn.RemoteAddr())
	}
	data := make([]byte, 64<<20)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(source.Uint32())
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, bytes.NewReader(data))
		sent <- errors.Join(err, to.CloseWrite())
	}()
	sum := sha256.New()
	n, err := io.Copy(sum, to) // it ends because the echo saw the end of what was sent
	if err := errors.Join(err, <-sent); err != nil || n != int64(len(data)) || !bytes.Equal(sum.Sum(nil), sumOf(data)) {
		t.Errorf("%d of %d bytes came back, %v", n, len(data), err)
	}
	for name, tt := range map[string]struct {
		ref  string
		code sbxerr.Code
	}{"no sandbox": {"none", sbxerr.NotFound}, "an odd name": {"a/../b", sbxerr.Config}} {
		if _, err := client.Forward(t.Context(), tt.ref, 7000); !errors.Is(err, tt.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Forward(t.Context(), "server", 0); !errors.Is(err, sbxerr.APIUsage) && !errors.Is(err, sbxerr.Config) {
		t.Errorf("no port: %v", err)
	}
	if r := d.User(t, ann).Try("port-forward", "server", "0:7000"); r.Code != 125 || !strings.Contains(r.Stderr, "SBX-107") {
		t.Errorf("another user: %d %s", r.Code, r.Stderr)
	}
}

func sumOf(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

// TestForwardEnds: a stream keeps its sandbox from being idle, ends with it, and there are not too many.
func TestForwardEnds(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	box(t, d, "server")
	d.Run(t, "exec", "server", "--", "sh", "-c", "echo hello > /tmp/f && busybox httpd -p 7002 -h /tmp") // it outlives its command
	client := api.Dial(d.Socket)
	first, err := client.Forward(t.Context(), "server", 7002)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	d.Run(t, "update", "server", "--idle-timeout", "1s")
	time.Sleep(2500 * time.Millisecond) // more than twice the time after which an idle one goes
	if r := d.Try("inspect", "server"); r.Code != 0 {
		t.Fatalf("it was idle beside a stream: %s", r.Stderr)
	}
	d.Run(t, "update", "server", "--idle-timeout", "never")
	var open []*api.Forwarded
	for len(open) < forward.MaxStreams-1 {
		to, err := client.Forward(t.Context(), "server", 7002)
		if err != nil {
			t.Fatalf("stream %d: %v", len(open)+2, err)
		}
		defer to.Close()
		open = append(open, to)
	}
	if _, err := client.Forward(t.Context(), "server", 7002); !errors.Is(err, sbxerr.Busy) {
		t.Errorf("stream %d: %v", forward.MaxStreams+1, err)
	}
	open[0].Close() // its place is free again
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		to, err := client.Forward(t.Context(), "server", 7002)
		if err == nil {
			defer to.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, first)
		ended <- err
	}()
	d.Run(t, "rm", "--force", "server")
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("a stream outlives its sandbox")
	}
}

// TestPortForward: the verb listens on loopback until it is interrupted.
func TestPortForward(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	box(t, d, "server")
	d.Run(t, "exec", "server", "--", "sh", "-c", "mkdir /tmp/w && echo hello > /tmp/w/index.html && busybox httpd -p 8000 -h /tmp/w")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("CAISSON_BIN_DIR"), "caisson"), "port-forward", "server", ":8000", ":9")
	cmd.Env = []string{"CAISSON_SOCKET=" + d.Socket, "PATH=" + os.Getenv("PATH")}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var open, closed string
	if _, err := fmt.Fscanf(out, "%s -> 8000\n%s -> 9\n", &open, &closed); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if body := indexOf(t, open); !strings.HasSuffix(body, "hello\n") {
			t.Errorf("answered %q", body)
		}
	}
	if body := indexOf(t, closed); body != "" {
		t.Errorf("where nothing listens: %q", body)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // ended by a signal
	if !strings.Contains(said.String(), "port 9: nothing listens on port 9") || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("it said %q", said.String())
	}
	if conn, err := net.Dial("tcp", open); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// indexOf is what a server says to a request.
func indexOf(t *testing.T, address string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /index.html HTTP/1.0\r\n\r\n")
	body, _ := io.ReadAll(conn) // one that is closed says nothing
	return string(body)
}
