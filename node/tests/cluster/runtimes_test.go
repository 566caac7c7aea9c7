package cluster

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	processv1 "github.com/caisson-run/caisson/node/agentsandbox/process/v1"
)

// runtimePod is one whose node answers as a runtime of agent-sandbox.
func runtimePod(t *testing.T, name, runtime string) (address string) {
	t.Helper()
	must(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {caisson.run/runtime: %s}}
spec: {containers: [{name: c, image: base, command: [sleep, "1000"], ports: [{containerPort: 8888}, {containerPort: 8080}, {containerPort: 9090}]}]}
`, name, runtime))
	t.Cleanup(func() { kubectl(t, "delete", "pod", name, "--ignore-not-found", "--grace-period=1") })
	phase(t, name, "Running")
	return kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.podIP}")
}

// call makes a request of HTTP, and returns the status and the body.
func call(t *testing.T, method, url, body string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %s", res.StatusCode, text), err
}

func calls(t *testing.T, method, url, body, want string) {
	t.Helper()
	if got, err := call(t, method, url, body); err != nil || !strings.Contains(got, want) {
		t.Errorf("%s %s: %s, %v", method, url, got, err)
	}
}

// TestPythonRuntime asks at the pod's address, through port-forward, and after a restart.
func TestPythonRuntime(t *testing.T) {
	address := runtimePod(t, "python", "python")
	url := "http://" + address + ":8888"
	const command, want = `{"command": "sh -c 'echo x > note; id -u; exit 3'"}`, `"exit_code":3`
	calls(t, "POST", url+"/execute", command, want)
	calls(t, "GET", url+"/download/note", "", "200 x\n")
	equal(t, "the file inside", kubectl(t, "exec", "python", "--", "cat", "/workspace/note"), "x\n")
	calls(t, "POST", "http://"+forward(t, "python", 8888)+"/execute", command, want)

	on := kubectl(t, "get", "pod", "python", "-o", "jsonpath={.spec.nodeName}")
	for _, n := range site.nodes {
		if n.name != on {
			continue
		}
		if err := n.program.signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if got, err := call(t, "GET", url+"/", ""); err == nil {
			t.Errorf("without its node it answers %s", got)
		}
		if err := n.program.start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := until("it answers again", func() error {
		got, err := call(t, "GET", url+"/download/note", "")
		if err == nil && got != "200 x\n" {
			err = fmt.Errorf("%q", got)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	kubectl(t, "delete", "pod", "python", "--grace-period=1")
	if err := until("nothing answers without its pod", func() error {
		if got, err := call(t, "GET", url+"/", ""); err == nil {
			return fmt.Errorf("%s", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestSandboxdRuntime(t *testing.T) {
	address := runtimePod(t, "sandboxd", "sandboxd")
	url := "http://" + address + ":8080/v1"
	calls(t, "GET", url+"/health", "", `"status":"ok"`)
	calls(t, "PUT", url+"/files/src/main", "print()", "204")
	calls(t, "GET", url+"/files/src/main", "", "200 print()")
	conn, err := grpc.NewClient("passthrough:///"+address+":9090", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	res := &processv1.ExecuteResponse{}
	req := &processv1.ExecuteRequest{Config: &processv1.ProcessConfig{Command: []string{"sh", "-c", "cat src/main; echo err >&2; exit 5"}}}
	if err := conn.Invoke(t.Context(), "/process.v1.ProcessService/Execute", req, res); err != nil || string(res.Stdout) != "print()" || string(res.Stderr) != "err\n" || res.ExitCode != 5 {
		t.Errorf("Execute gave %v, %v", res, err)
	}
}

// zeros is a body that is made while it is sent.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestLargeFile sends and reads a file that the program must not hold, beside a reader that stalls.
func TestLargeFile(t *testing.T) {
	url := "http://" + runtimePod(t, "large", "sandboxd") + ":8080/v1/files/large"
	size := int64(number(t, "CAISSON_TEST_FILE_MB", 256)) << 20
	begin := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", url, io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusNoContent {
		t.Fatalf("%v, %v", res, err)
	}
	sent := time.Since(begin)
	equal(t, "the size inside", kubectl(t, "exec", "large", "--", "stat", "-c", "%s", "/workspace/large"), fmt.Sprintln(size))
	stalls, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer stalls.Body.Close()
	begin = time.Now()
	res, err = http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n != size {
		t.Errorf("read %d of %d, %v", n, size, err)
	}
	f := map[string]any{"file_mb": size >> 20, "sent_s": sent.Seconds(), "read_s": time.Since(begin).Seconds()}
	for _, n := range site.nodes {
		f["program_rss_mb_"+n.name] = n.program.rss() >> 20
		if rss := n.program.rss(); rss > 150<<20 {
			t.Errorf("the program of %s has %d MB", n.name, rss>>20)
		}
	}
	figures(t, f)
}

// TestRuntimeRefused: a runtime that is none.
func TestRuntimeRefused(t *testing.T) {
	must(t, `apiVersion: v1
kind: Pod
metadata: {name: other, annotations: {caisson.run/runtime: perl}}
spec: {containers: [{name: c, image: base, command: [sleep, "1000"]}]}
`)
	t.Cleanup(func() { kubectl(t, "delete", "pod", "other", "--grace-period=1") })
	phase(t, "other", "Failed")
	if out := kubectl(t, "get", "pod", "other", "-o", "jsonpath={.status.message}"); !strings.Contains(out, "caisson.run/runtime") {
		t.Errorf("it says %q", out)
	}
}
