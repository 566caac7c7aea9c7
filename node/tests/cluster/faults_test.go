package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// counts prints a number every tenth of a second.
const counts = `i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 9`

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// on runs a pod on one node.
func on(t *testing.T, name string, n *node, script string) {
	t.Helper()
	create(t, name, name, n.name, script)
	t.Cleanup(func() { kubectl(t, "delete", "pod", name, "--ignore-not-found", "--grace-period=1") })
	phase(t, name, "Running")
}

// output is what a call prints while it runs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// followLogs begins logs -f. The channel has its end.
func followLogs(t *testing.T, name string) (*output, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	cmd, out, ended := prepare(ctx, "logs", "-f", name), &output{}, make(chan error, 1)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	if err := until("some output", func() error {
		if !strings.Contains(out.String(), "\n3\n") {
			return fmt.Errorf("%q", out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out, ended
}

func TestKilledDaemon(t *testing.T) {
	n := site.nodes[1]
	on(t, "counts", n, fmt.Sprintf(counts, 120))
	on(t, "short", n, "sleep 2; exit 5")
	out, ended := followLogs(t, "counts")
	if err := n.daemon.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := until("the node is not ready", func() error { return site.nodeReady(n, corev1.ConditionFalse) }); err != nil {
		t.Error(err)
	}
	time.Sleep(2 * time.Second) // the short one ends meanwhile
	if err := n.daemon.start(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("logs -f ended by %v", err)
	}
	equal(t, "logs -f", out.String(), numbers(120))
	phase(t, "counts", "Failed")
	phase(t, "short", "Failed")
	equal(t, "the exit code", exitCode(t, "short"), "5")
	if err := until("the node is ready", func() error { return site.nodeReady(n, corev1.ConditionTrue) }); err != nil {
		t.Error(err)
	}
}

// leave ends programs of the control plane. The function that it returns starts them again.
func leave(t *testing.T, names ...string) (back func()) {
	t.Helper()
	plane := filepath.Join(site.dir, "plane")
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(plane, name+".pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil {
			err = os.WriteFile(filepath.Join(plane, name+".away"), nil, 0o600)
		}
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err == nil {
			err = until(name+" is gone", func() error {
				if syscall.Kill(pid, 0) == nil {
					return fmt.Errorf("process %d is there", pid)
				}
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	back = func() {
		for _, name := range names {
			if err := os.Remove(filepath.Join(plane, name+".away")); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
		if err := site.answers(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(back)
	return back
}

// TestServerAway: while no API server answers, pods go on and end, also under a program that was
// started meanwhile. When it is back it is told all of it, and what it forgot is removed.
func TestServerAway(t *testing.T) {
	n := site.nodes[1]
	on(t, "counts", n, fmt.Sprintf(counts, 80))
	on(t, "short", n, "sleep 2; exit 5")
	on(t, "stays", n, "exec sleep 1000")
	before := kubectl(t, "get", "pod", "stays", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	back := leave(t, "apiserver")
	if err := site.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err == nil {
		t.Fatal("the API server answers")
	}
	if err := n.program.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := n.program.start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(number(t, "CAISSON_TEST_AWAY", 20)) * time.Second) // both that end do so meanwhile
	if !n.program.runs() {
		t.Fatalf("the program ended without an API server: %s", n.program.tail())
	}
	l, err := n.caisson.List(t.Context(), &caissonv1.ListRequest{States: []string{"running"}, Labels: map[string]string{"k8s-pod": "stays"}})
	if err != nil || len(l.Sandboxes) != 1 {
		t.Errorf("without an API server %v, %v", l.GetSandboxes(), err)
	}
	back()
	if err := site.joined(n); err != nil {
		t.Error(err)
	}
	phase(t, "counts", "Failed")
	phase(t, "short", "Failed")
	equal(t, "logs", kubectl(t, "logs", "counts"), numbers(80))
	equal(t, "the exit code", exitCode(t, "short"), "5")
	phase(t, "stays", "Running")
	equal(t, "the container", kubectl(t, "get", "pod", "stays", "-o", "jsonpath={.status.containerStatuses[0].containerID}"), before)
	on(t, "after", n, "exec sleep 1000")
	kubectl(t, "delete", "pod", "counts", "short", "stays", "after", "--grace-period=1")
	if err := until("nothing is left", func() error { return n.emptied(t.Context()) }); err != nil {
		t.Error(err)
	}
}

// TestRestoredEtcd: pods and sandboxes agree again after etcd has an older state. A sandbox with a
// pod runs on. A sandbox without a pod is removed. A pod without its sandbox is Failed.
func TestRestoredEtcd(t *testing.T) {
	n := site.nodes[1]
	for _, name := range []string{"kept", "returns", "anew"} {
		on(t, name, n, "exec sleep 1000")
	}
	on(t, "ends", n, "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 5")
	id := func(name string) string {
		return kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	}
	kept, anew := id("kept"), id("anew")
	plane := filepath.Join(site.dir, "plane")
	old, state := os.DirFS(filepath.Join(plane, "etcd")), filepath.Join(plane, "etcd-old")
	back := leave(t, "apiserver", "etcd")
	if err := os.CopyFS(state, old); err != nil {
		t.Fatal(err)
	}
	back()

	kubectl(t, "delete", "pod", "returns", "anew", "--grace-period=1")
	on(t, "anew", n, "exec sleep 1000")
	on(t, "younger", n, "exec sleep 1000")
	kubectl(t, "exec", "ends", "--", "touch", "/tmp/end")
	phase(t, "ends", "Failed")
	if id("anew") == anew {
		t.Fatal("the pod has the container of the one before it")
	}

	back = leave(t, "apiserver", "etcd")
	if err := errors.Join(os.RemoveAll(filepath.Join(plane, "etcd")), os.Rename(state, filepath.Join(plane, "etcd"))); err != nil {
		t.Fatal(err)
	}
	back()
	if err := site.joined(n); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"returns", "anew", "ends"} {
		phase(t, name, "Failed")
	}
	for name, want := range map[string]string{"returns": "137", "anew": "137", "ends": "5"} {
		equal(t, "the exit code of "+name, exitCode(t, name), want)
	}
	equal(t, "younger", kubectl(t, "get", "pod", "younger", "--ignore-not-found"), "")
	if err := until("only the kept one runs", func() error {
		l, err := n.caisson.List(t.Context(), &caissonv1.ListRequest{States: []string{"running"}, Labels: map[string]string{"k8s-node": n.name}})
		if err != nil || len(l.Sandboxes) != 1 || l.Sandboxes[0].Labels["k8s-pod"] != "kept" {
			return fmt.Errorf("%v, %v", l.GetSandboxes(), err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	phase(t, "kept", "Running")
	equal(t, "the container", id("kept"), kept)
	on(t, "after", n, "exec sleep 1000")
	equal(t, "exec", kubectl(t, "exec", "after", "--", "echo", "works"), "works\n")
	kubectl(t, "delete", "pod", "kept", "returns", "anew", "ends", "after", "--grace-period=1")
	if err := until("nothing is left", func() error { return n.emptied(t.Context()) }); err != nil {
		t.Error(err)
	}
}

func exitCode(t *testing.T, name string) string {
	t.Helper()
	return kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}")
}

func TestKilledProgram(t *testing.T) {
	n := site.nodes[1]
	on(t, "counts", n, fmt.Sprintf(counts, 80))
	on(t, "short", n, "sleep 1; exit 5")
	on(t, "forced", n, "exec sleep 1000")
	_, ended := followLogs(t, "counts")
	if err := n.program.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ended // with its connection
	now := int64(0)
	if err := site.client.CoreV1().Pods("default").Delete(t.Context(), "forced", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // the short one ends meanwhile
	if err := n.program.start(); err != nil {
		t.Fatal(err)
	}
	phase(t, "counts", "Failed")
	equal(t, "logs", kubectl(t, "logs", "counts"), numbers(80))
	equal(t, "the exit code", exitCode(t, "counts"), "9")
	equal(t, "the exit code", exitCode(t, "short"), "5")
	kubectl(t, "delete", "pod", "counts", "short")
	if err := until("nothing is left", func() error { return n.emptied(t.Context()) }); err != nil {
		t.Error(err)
	}
}

// TestSecondProgram: one daemon is one node's.
func TestSecondProgram(t *testing.T) {
	n := site.nodes[1]
	second := process{line: n.program.line, log: n.root + "-second.log"}
	if err := second.start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.ended:
	case <-time.After(deadline):
		_ = second.signal(syscall.SIGKILL)
	}
	if !strings.Contains(second.tail(), "another caisson-node serves this daemon") {
		t.Errorf("it says %s", second.tail())
	}
}

// TestStrangers: the node answers nobody but whom the API server allows.
func TestStrangers(t *testing.T) {
	n := site.nodes[0]
	for name, want := range map[string]string{"": "401", "nobody": "403", "kubelet-client": "200"} {
		if got := ask(t, n, name); got != want {
			t.Errorf("%q got %s, not %s", name, got, want)
		}
	}
}

// ask asks the node's own port with a client's certificate, and returns the status.
func ask(t *testing.T, n *node, name string) string {
	t.Helper()
	plane := filepath.Join(site.dir, "plane")
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(plane, "ca.crt"))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(plane, name+".crt"), filepath.Join(plane, name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	res, err := client.Get("https://" + n.address + ":10250/pods")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return strconv.Itoa(res.StatusCode)
}
