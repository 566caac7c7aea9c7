package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// box runs a pod of the image base until the test ends.
func box(t *testing.T, name, script string, more ...string) {
	t.Helper()
	kubectl(t, append(append([]string{"run", name, "--image=base", "--restart=Never"}, more...), "--", "sh", "-c", script)...)
	t.Cleanup(func() { kubectl(t, "delete", "pod", name, "--ignore-not-found", "--grace-period=1") })
}

// phase waits for a phase of a pod.
func phase(t *testing.T, name, want string) {
	t.Helper()
	kubectl(t, "wait", "pod/"+name, "--for=jsonpath={.status.phase}="+want, "--timeout=60s")
}

const obeys = `trap "exit 0" TERM; while :; do sleep 0.1; done`

func TestRunAndLogs(t *testing.T) {
	box(t, "hello", "echo one; echo two; sleep 0.2; echo three >&2; exit 3")
	phase(t, "hello", "Failed")
	equal(t, "the exit code", kubectl(t, "get", "pod", "hello", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"), "3")
	if out := kubectl(t, "logs", "hello"); !strings.Contains(out, "one\ntwo\n") || !strings.Contains(out, "three\n") {
		t.Errorf("the log is %q", out)
	}
	equal(t, "--tail=0", kubectl(t, "logs", "hello", "--tail=0"), "")
	equal(t, "--limit-bytes", kubectl(t, "logs", "hello", "--limit-bytes=3"), "one")
	if n := strings.Count(kubectl(t, "logs", "hello", "--tail=2"), "\n"); n != 2 {
		t.Errorf("--tail=2 gave %d lines", n)
	}
	if out := kubectl(t, "logs", "hello", "--timestamps"); !regexp.MustCompile(`(?m)^20\d\d-\S+Z one$`).MatchString(out) {
		t.Errorf("--timestamps gave %q", out)
	}
	equal(t, "--since", kubectl(t, "logs", "hello", "--since-time=2099-01-01T00:00:00Z"), "")
}

func TestExec(t *testing.T) {
	box(t, "exec", obeys)
	phase(t, "exec", "Running")
	r := try("", "exec", "exec", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if r.out != "out\n" || !strings.Contains(r.errs, "err\n") || r.code != 7 {
		t.Errorf("exec gave %+v", r)
	}
	if r := try("in\n", "exec", "-i", "exec", "--", "cat"); r.out != "in\n" || r.code != 0 {
		t.Errorf("exec -i gave %+v", r)
	}
	if r := try("", "exec", "exec", "--", "no-such-command"); r.code == 0 {
		t.Errorf("an absent command gave %+v", r)
	}
	out := terminal(t, "stty rows 33 cols 111; $KUBECTL exec -it exec -- sh -c 'stty size; exit 5'; echo code $?")
	if !strings.Contains(out, "33 111") || !strings.Contains(out, "code 5") {
		t.Errorf("on a terminal: %q", out)
	}
}

// terminal runs a script with a terminal of its own. $KUBECTL calls kubectl.
func terminal(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "script", "-qec", "sh -c "+shellQuote(script), "/dev/null")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+site.kubeconfig("admin"), "HOME="+site.dir, "KUBECTL="+program("CAISSON_KUBERNETES", "kubernetes")+" kubectl")
	cmd.Stdin = strings.NewReader("")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func TestRunWithInput(t *testing.T) {
	r := try("hello\n", "run", "input", "--image=base", "--restart=Never", "-i", "--rm", "--quiet", "--", "sh", "-c", "read a; echo got $a; exit 4")
	if !strings.Contains(r.out, "got hello\n") || r.code != 4 {
		t.Errorf("run -i gave %+v", r)
	}
	out := terminal(t, "stty rows 33 cols 111; $KUBECTL run tty --image=base --restart=Never -it --rm --quiet -- sh -c 'sleep 1; stty size; exit 6'; echo code $?")
	if !strings.Contains(out, "33 111") || !strings.Contains(out, "code 6") {
		t.Errorf("run -it gave %q", out)
	}
}

func TestCopy(t *testing.T) {
	box(t, "copy", obeys)
	phase(t, "copy", "Running")
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	content := strings.Repeat("0123456789abcdef", 1<<16)
	if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "cp", from, "copy:/tmp/file")
	kubectl(t, "cp", "copy:/tmp/file", to)
	back, err := os.ReadFile(to)
	if err != nil || string(back) != content {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
}

// forward runs port-forward to a port of a pod until the test ends, and returns its address here.
func forward(t *testing.T, name string, port int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := prepare(ctx, "port-forward", "pod/"+name, fmt.Sprintf(":%d", port))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	m := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || m == "" {
		t.Fatalf("port-forward says %q, %v", line, err)
	}
	return m
}

func TestPortForward(t *testing.T) {
	box(t, "port", `while :; do echo served | nc -l -p 8080; done`)
	phase(t, "port", "Running")
	m := forward(t, "port", 8080)
	if err := until("an answer", func() error {
		conn, err := net.Dial("tcp", m)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if text, err := io.ReadAll(conn); string(text) != "served\n" {
			return fmt.Errorf("%q, %w", text, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestStatistics(t *testing.T) {
	box(t, "stats", obeys)
	phase(t, "stats", "Running")
	on := kubectl(t, "get", "pod", "stats", "-o", "jsonpath={.spec.nodeName}")
	for path, want := range map[string]string{
		"stats/summary":    `"name": "stats"`,
		"metrics/resource": `pod_memory_working_set_bytes{namespace="default",pod="stats"}`,
	} {
		if out := kubectl(t, "get", "--raw", "/api/v1/nodes/"+on+"/proxy/"+path); !strings.Contains(out, want) && !strings.Contains(out, strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%s is %q", path, out)
		}
	}
}

// TestTop asks by metrics-server, which asks the nodes every 10 s.
func TestTop(t *testing.T) {
	kubectl(t, "apply", "-f", "metrics.yaml")
	box(t, "top", obeys)
	phase(t, "top", "Running")
	for _, args := range [][]string{ // one of the nodes has no pod
		{"top", "pod", "top", "--containers", "--no-headers"},
		{"top", "node", site.nodes[0].name, "--no-headers"}, {"top", "node", site.nodes[1].name, "--no-headers"},
	} {
		if err := until(strings.Join(args, " "), func() error {
			if r := try("", args...); r.code != 0 || !strings.Contains(r.out, "Mi") {
				return fmt.Errorf("%s%s", r.out, r.errs)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestDelete(t *testing.T) {
	for _, c := range []struct {
		name, script string
		flags        []string
		least, most  time.Duration
	}{
		{"obeys", obeys, nil, 0, 5 * time.Second},
		{"ignores", `trap "" TERM; while :; do sleep 0.1; done`, []string{"--grace-period=2"}, time.Second, 8 * time.Second},
		{"forced", `trap "" TERM; while :; do sleep 0.1; done`, []string{"--grace-period=0", "--force"}, 0, 5 * time.Second},
	} {
		box(t, c.name, c.script)
		phase(t, c.name, "Running")
		begin := time.Now()
		kubectl(t, append([]string{"delete", "pod", c.name}, c.flags...)...)
		if took := time.Since(begin); took < c.least || took > c.most {
			t.Errorf("%s: deleted in %s", c.name, took)
		}
	}
}

func TestCordonAndDrain(t *testing.T) {
	name := site.nodes[0].name
	kubectl(t, "cordon", name)
	t.Cleanup(func() { kubectl(t, "uncordon", name) })
	box(t, "elsewhere", obeys)
	phase(t, "elsewhere", "Running")
	equal(t, "the node", kubectl(t, "get", "pod", "elsewhere", "-o", "jsonpath={.spec.nodeName}"), site.nodes[1].name)
	kubectl(t, "uncordon", name)
	kubectl(t, "create", "deployment", "drained", "--image=base", "--replicas=6", "--", "sh", "-c", obeys)
	t.Cleanup(func() { kubectl(t, "delete", "deployment", "drained") })
	kubectl(t, "rollout", "status", "deployment/drained", "--timeout=60s")
	kubectl(t, "drain", name, "--force", "--timeout=60s")
	kubectl(t, "rollout", "status", "deployment/drained", "--timeout=60s")
	on := kubectl(t, "get", "pods", "-l", "app=drained", "--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].spec.nodeName}")
	if strings.Contains(on, name) || strings.Count(on, site.nodes[1].name) != 6 {
		t.Errorf("pods run on %q", on)
	}
}

func TestDebugIsRefused(t *testing.T) {
	box(t, "debugged", obeys)
	phase(t, "debugged", "Running")
	kubectl(t, "debug", "debugged", "--image=base", "--", "true")
	if err := until("an event", func() error {
		out := kubectl(t, "get", "events", "--field-selector=involvedObject.name=debugged", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "ephemeralContainers") {
			return fmt.Errorf("%s", out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	phase(t, "debugged", "Running")
}
