package daemon

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/caisson-run/caisson/node/agentsandbox"
)

// TestRuntimePorts: probes and port-forward reach the runtime of a pod, and its sandbox at all others.
func TestRuntimePorts(t *testing.T) {
	d := serve(t)
	probe := func() bool {
		good, _, err := d.Probe(t.Context(), "box", &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8888)}}})
		return good && err == nil
	}
	if probe() {
		t.Fatal("this host has something at port 8888")
	}
	d.Runtimes = agentsandbox.New(d.Client)
	defer d.Runtimes.Close()
	if err := d.Runtimes.Follow("pod", []agentsandbox.Sandbox{{ID: "box", Runtime: "python", Dir: "/workspace"}}); err != nil {
		t.Fatal(err)
	}
	if !probe() {
		t.Error("the probe does not reach the runtime")
	}
	if _, err := d.Forward(t.Context(), "other", 8888); err == nil {
		t.Error("another sandbox has the runtime")
	}
}
