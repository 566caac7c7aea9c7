package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBootstrap lets a node join that has no certificates of its own.
func TestBootstrap(t *testing.T) {
	certs := filepath.Join(site.dir, "certs")
	n, err := site.newNode("caisson-c", 3, "--bootstrap-kubeconfig", site.kubeconfig("bootstrap"), "--cert-dir", certs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kubectl(t, "delete", "node", n.name, "--ignore-not-found")
		if err := n.end(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(n.daemon.start(), n.program.start(), site.joined(n)); err != nil {
		t.Fatal(err, n.program.tail())
	}
	apply(t, "classy", `{runtimeClassName: caisson, containers: [{name: c, image: base, command: [sleep, "1000"]}]}`)
	phase(t, "classy", "Running")
	create(t, "joined", "joined", n.name, "echo hello; "+obeys)
	t.Cleanup(func() {
		kubectl(t, "delete", "pod", "joined", "--grace-period=1")
		if err := until("nothing is left", func() error { return n.emptied(context.Background()) }); err != nil {
			t.Error(err)
		}
	})
	phase(t, "joined", "Running")
	if r := try("", "logs", "joined"); r.code == 0 {
		t.Error("its log is served before its certificate was approved")
	}
	approve(t)
	if err := until("the log is served", func() error {
		if r := try("", "logs", "joined"); r.out != "hello\n" {
			return fmt.Errorf("%s%s", r.out, r.errs)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(certs, "client-current.pem")); err != nil || !strings.Contains(string(text), "CERTIFICATE") {
		t.Errorf("the client's certificate is %q, %v", text, err)
	}
}

// approve approves requests for serving certificates, once there is one.
func approve(t *testing.T) {
	t.Helper()
	if err := until("a request for a serving certificate", func() error {
		names := kubectl(t, "get", "csr", "-o", `jsonpath={.items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")].metadata.name}`)
		if names == "" {
			return errors.New("none")
		}
		kubectl(t, append([]string{"certificate", "approve"}, strings.Fields(names)...)...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
