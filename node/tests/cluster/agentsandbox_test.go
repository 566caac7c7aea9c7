package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// check runs the script that operators run, and returns its output.
func check(t *testing.T, more ...string) (out, errs string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../../deploy/kubernetes/agent-sandbox-check.sh")
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+site.kubeconfig("admin"), "HOME="+site.dir,
		"KUBECTL="+program("CAISSON_KUBERNETES", "kubernetes")+" kubectl", "STORAGE_CLASS=caisson"), more...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func imitated(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", site.kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 2000
	if err := (&standIn{}).run(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// controller runs the real one, without its webhook for objects of older versions.
func controller(t *testing.T, path string) {
	t.Helper()
	p := process{log: filepath.Join(site.dir, "agent-sandbox.log"), env: []string{"KUBECONFIG=" + site.kubeconfig("admin")}, line: []string{
		path, "--extensions", "--enable-webhook=false", "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"}}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.signal(syscall.SIGTERM); err != nil || t.Failed() {
			t.Logf("%v: %s", err, p.tail())
		}
	})
}

// TestAgentSandbox runs the script against a stand-in for agent-sandbox's controller. It shows the
// node's part: pods are soon Ready and have an address, run commands, and end.
// CAISSON_AGENT_SANDBOX names a checkout of agent-sandbox with a built agent-sandbox-controller, to
// run that instead.
func TestAgentSandbox(t *testing.T) {
	permitted(t, "caisson-volumes")
	checkout, kindsOf := os.Getenv("CAISSON_AGENT_SANDBOX"), "testdata/agent-sandbox.yaml"
	if checkout != "" {
		kindsOf = filepath.Join(checkout, "k8s/crds")
	}
	kubectl(t, "apply", "--server-side", "-f", kindsOf)
	t.Cleanup(func() { kubectl(t, "delete", "-f", kindsOf) })
	kubectl(t, "wait", "-f", kindsOf, "--for=condition=Established", "--timeout=60s")
	if out, errs, err := check(t, "TIMEOUT=20"); err == nil || out != "" || !strings.Contains(errs, "timed out") {
		t.Fatalf("without a controller: %v: %s%s", err, out, errs)
	}
	if checkout != "" {
		kubectl(t, "patch", "-f", kindsOf, "--type=merge", "-p", `{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
		controller(t, filepath.Join(checkout, "agent-sandbox-controller"))
	} else {
		imitated(t)
	}
	claims := number(t, "CAISSON_TEST_CLAIMS", 200)
	out, errs, err := check(t, fmt.Sprintf("CLAIMS=%d", claims))
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	values := map[string]any{}
	if err := json.Unmarshal([]byte(out), &values); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	figures(t, values)
	if values["claims"] != float64(claims) {
		t.Errorf("%v claims were Ready, not %d", values["claims"], claims)
	}
	if r := try("", "get", "namespace", "agent-sandbox-check"); r.code == 0 {
		t.Error("the script leaves its namespace")
	}
}
