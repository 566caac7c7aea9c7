package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
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

// TestAgentSandbox runs the script against a stand-in for agent-sandbox's controller. So it shows
// what the node gives: pods that are soon Ready with an address, run commands and end.
func TestAgentSandbox(t *testing.T) {
	permitted(t, "caisson-volumes")
	const kindsOf = "testdata/agent-sandbox.yaml"
	kubectl(t, "apply", "-f", kindsOf)
	t.Cleanup(func() { kubectl(t, "delete", "-f", kindsOf) })
	kubectl(t, "wait", "-f", kindsOf, "--for=condition=Established", "--timeout=60s")
	if out, errs, err := check(t, "TIMEOUT=20"); err == nil || out != "" || !strings.Contains(errs, "timed out") {
		t.Fatalf("without a controller: %v: %s%s", err, out, errs)
	}
	config, err := clientcmd.BuildConfigFromFlags("", site.kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 2000
	if err := (&standIn{}).run(t.Context(), config); err != nil {
		t.Fatal(err)
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
