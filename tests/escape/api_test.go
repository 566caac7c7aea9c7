package escape

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// post sends a body to a method of the API as it is.
func post(t *testing.T, method, path, contentType string, body io.Reader) (int, string) {
	t.Helper()
	client := &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", daemon.Socket)
		}},
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://caisson"+path, body)
	must(t, err)
	req.Header.Set("Content-Type", contentType)
	r, err := client.Do(req)
	if err != nil {
		return 0, err.Error() // the server hung up
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	return r.StatusCode, string(text)
}

const (
	inspectCall = "/caisson.v1.SandboxService/Inspect"
	specCall    = "/caisson.v1.SandboxService/Spec"
	removeCall  = "/caisson.v1.SandboxService/Remove"
)

// The API takes what it knows and refuses everything else, by a 4xx; what is no call of it, by 501.
func TestRequestsAreStrict(t *testing.T) {
	if code, text := post(t, "POST", specCall, "application/json", strings.NewReader(`{"spec":{"exec":{"args":["true"]}}}`)); code != 200 {
		t.Fatalf("a sound request gets %d: %s", code, text)
	}
	long := strings.Repeat("a", 1<<20)
	for _, tt := range []struct{ id, name, call, body string }{
		{"P152", "unknown key", inspectCall, `{"ref":"a","force":true}`},
		{"P152", "unknown key of another case", inspectCall, `{"ref":"a","Ref":"b"}`},
		{"P152", "key twice", inspectCall, `{"ref":"a","ref":"b"}`},
		{"P152", "wrong type", inspectCall, `{"ref":1}`},
		{"P152", "array", inspectCall, `["a"]`},
		{"P152", "not JSON", inspectCall, `ref=a`},
		{"P152", "two documents", inspectCall, `{"ref":"a"}{"ref":"b"}`},
		{"P152", "cut off", inspectCall, `{"ref":"a`},
		{"P152", "deep", inspectCall, strings.Repeat(`{"spec":`, 20000) + strings.Repeat("}", 20000)},
		{"P152", "no ID", inspectCall, `{}`},
		{"P152", "ID that climbs", inspectCall, `{"ref":"../../../etc"}`},
		{"P152", "ID that climbs, to remove", removeCall, `{"ref":"../images","force":true}`},
		{"P152", "ID with a slash", removeCall, `{"ref":"a/b"}`},
		{"P152", "ID with a format", inspectCall, `{"ref":"%n%s%x"}`},
		{"P152", "ID with a NUL", inspectCall, `{"ref":"a\u0000b"}`},
		{"P152", "ID with a newline", inspectCall, `{"ref":"a\nb"}`},
		{"P152", "ID of 1 MiB", inspectCall, `{"ref":"` + long + `"}`},
		{"P152", "huge number", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"limits":{"memoryBytes":"99999999999999999999"}}}}`},
		{"P152", "endless number", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"limits":{"pids":1e400}}}}`},
		{"P152", "fraction", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"limits":{"pids":1.5}}}}`},
		{"P152", "negative limit", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"limits":{"memoryBytes":-1}}}}`},
		{"P152", "limit of 0", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"limits":{"pids":0}}}}`},
		{"P152", "NUL in an argument", specCall, `{"spec":{"exec":{"args":["a\u0000b"]}}}`},
		{"P015", "privileged", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"privileged":true}}}`},
		{"P015", "capability", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"capAdd":["SYS_ADMIN"]}}}`},
		{"P015", "host network", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"network":"host"}}}`},
		{"P015", "unconfined", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"profile":"unconfined"}}}`},
		{"P015", "security option", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"securityOpt":["seccomp=unconfined"]}}}`},
		{"P015", "device", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"devices":["/dev/mem"]}}}`},
		{"P015", "hook", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"hooks":{"prestart":[]}}}}`},
		{"P015", "annotation", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"annotations":{"a":"b"}}}}`},
		{"P015", "label of the engine", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"labels":{"caisson.managed":"no"}}}}`},
		{"P015", "loader in the environment without a value", specCall, `{"spec":{"exec":{"args":["true"],"env":["LD_PRELOAD"]}}}`},
		{"P015", "the host's root as workspace", specCall, `{"spec":{"exec":{"args":["true"]},"sandbox":{"workspace":{"dir":"/"}}}}`},
		{"P150", "checkpoint", "/caisson.v1.SandboxService/Checkpoint", `{"ref":"a"}`},
		{"P150", "restore", "/caisson.v1.SandboxService/Restore", `{"ref":"a"}`},
		{"P150", "containerd's own API", "/containerd.services.containers.v1.Containers/List", `{}`},
		{"P150", "profiler", "/debug/pprof/heap", ``},
		{"P150", "metrics", "/metrics", ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			held(t, tt.id, "API: "+tt.name)
			code, text := post(t, "POST", tt.call, "application/json", strings.NewReader(tt.body))
			if (code < 400 || code > 499) && code != http.StatusNotImplemented {
				t.Errorf("answered with %d: %.300s", code, text)
			}
		})
	}
	daemon.Run(t, "run", "--", "true") // it is as well as before
}

// A body without an end is cut off, and other ways to call lead nowhere.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestBodiesAreBounded(t *testing.T) {
	held(t, "P152", "API: endless body")
	before := rss(t)
	code, text := post(t, "POST", inspectCall, "application/json", io.LimitReader(endless{}, 1<<30))
	if code != 0 && (code < 400 || code > 499) {
		t.Errorf("answered with %d: %.300s", code, text)
	}
	if grown := rss(t) - before; grown > 64<<10 {
		t.Errorf("the daemon grew by %d kB", grown)
	}
	for _, method := range []string{"PUT", "DELETE", "TRACE", "CONNECT"} {
		if code, text := post(t, method, inspectCall, "application/json", strings.NewReader(`{"ref":"a"}`)); code == 200 {
			t.Errorf("%s is answered: %s", method, text)
		}
	}
	if code, _ := post(t, "POST", inspectCall, "text/plain", strings.NewReader(`{"ref":"a"}`)); code == 200 {
		t.Error("a form that any web page can send is taken")
	}
	daemon.Run(t, "run", "--", "true")
}

// Unfinished large requests, as many as a process of root can send at once, take at most
// 128 MiB of the daemon's memory.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestLargeBodies(t *testing.T) {
	held(t, "P152", "API: many large bodies")
	before := rss(t)
	const size = 4<<20 - 64<<10
	body := bytes.Repeat([]byte{' '}, size)
	var sent sync.WaitGroup
	for range 200 {
		conn, err := net.Dial("unix", daemon.Socket)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // the daemon may have closed it
		must(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
		sent.Go(func() {
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: caisson\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", inspectCall, size+1)
			_, _ = conn.Write(body) // a refused one is not read to its end
		})
	}
	ended := make(chan struct{})
	go func() { sent.Wait(); close(ended) }()
	peak := int64(0)
	for open := true; open; {
		select {
		case <-ended:
			open = false
		case <-time.After(5 * time.Millisecond): // nothing announces growth
		}
		peak = max(peak, int64(rss(t)))
	}
	t.Logf("the daemon grew by %d MiB", (peak-int64(before))>>10)
	if grown := peak - int64(before); grown > 128<<10 || grown < 8<<10 {
		t.Errorf("the daemon grew by %d kB, want 8 to 128 MiB", grown)
	}
	daemon.Run(t, "run", "--", "true")
}

// endless is JSON that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// How a command ended is what the kernel counted, not what the command says.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestEndsAreNotFaked(t *testing.T) {
	for _, tt := range []struct {
		name, script, reason string
		code, signal         int
	}{
		{"code of an OOM kill", "exit 137", "exited", 137, 0},
		{"signal of an OOM kill", "kill -9 $$", "signaled", 137, 9},
		{"code of a timeout", "exit 124", "exited", 124, 0},
		{"code of a runtime failure", "exit 125", "exited", 125, 0},
		{"code of a signal", "exit 143", "exited", 143, 0},
		{"an error as the runtime prints it", `echo '{"error":{"code":"SBX-605"}}'; exit 125`, "exited", 125, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			held(t, "P149", tt.name)
			r := daemon.RunJSON(t, "--", "sh", "-c", tt.script)
			if r.Source != "command" || r.Reason != tt.reason || r.ExitCode != tt.code || r.Signal != tt.signal || r.OOMKilled || r.TimedOut {
				t.Errorf("result %+v", r)
			}
		})
	}
}
