package reconcile

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/caisson-run/caisson/node/agentsandbox"
	"github.com/caisson-run/caisson/node/pod"
)

func withRuntime(p *corev1.Pod) {
	p.Annotations = map[string]string{"caisson.run/runtime": "python"}
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
}

// execute asks the runtime of a pod, and returns what its command wrote.
func execute(address string) (string, error) {
	res, err := http.Post("http://"+address+":8888/execute", "application/json", strings.NewReader(`{"command":"a b"}`))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var r struct{ Stdout string }
	err = json.NewDecoder(res.Body).Decode(&r)
	return r.Stdout, err
}

func listens(address string) bool {
	_, err := execute(address)
	return err == nil
}

// TestRuntimeFollowsItsSandbox: it answers before the pod is told to run, after a restart of the
// container and of the program, whatever the pod's annotations are then, and not after the end.
func TestRuntimeFollowsItsSandbox(t *testing.T) {
	const at = "127.82.0.1"
	p := newPod(withRuntime)
	w := newWorld(t, p)
	w.ips.of[uid1] = at
	_, stop := w.run(t)
	w.phase(t, corev1.PodRunning)
	if out, err := execute(at); err != nil || out != "id-"+box1+" /workspace [a b]" {
		t.Fatalf("it answers %q, %v", out, err)
	}
	if !w.volumes[uid1+"._workspace"] {
		t.Errorf("the volumes are %v", w.volumes)
	}
	w.finish(box1, 1)
	eventually(t, "the next container answers", func() bool {
		out, err := execute(at)
		return err == nil && strings.HasPrefix(out, "id-"+uid1+"-0-1 ")
	})
	stop()
	w.config.Runtimes.Close() // as the program does
	if listens(at) {
		t.Error("it answers without the program")
	}
	changed := w.pod(t)
	changed.Labels, changed.Annotations = map[string]string{"agents.x-k8s.io/claim-uid": "7"}, nil
	if _, err := w.client.CoreV1().Pods("ns").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.config.Runtimes = agentsandbox.New(inside{})
	w.run(t)
	eventually(t, "it answers again", func() bool { return listens(at) })
	if err := w.client.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing answers", func() bool { return !listens(at) && len(w.names()) == 0 })
}

// TestRuntimeAnswersWithoutTheAPIServer: a sandbox with its labels is enough where policies are ignored.
func TestRuntimeAnswersWithoutTheAPIServer(t *testing.T) {
	w := newWorld(t)
	w.config.IgnorePolicies = true
	s := boxOf(uid1, "127.82.0.2")
	s.Labels[pod.LabelRuntime], s.Labels[pod.LabelDir] = "python", "/app"
	w.boxes[s.Name] = s
	if err := New(w.config).adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer w.config.Runtimes.Close()
	if out, err := execute("127.82.0.2"); err != nil || out != "id-"+box1+" /app [a b]" {
		t.Errorf("it answers %q, %v", out, err)
	}
}

// TestRuntimeWithoutItsPort: the pod does not run while another program has the port.
func TestRuntimeWithoutItsPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.82.0.3:8888")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := newWorld(t, newPod(withRuntime))
	w.ips.of[types.UID(uid1)] = "127.82.0.3"
	w.run(t)
	eventually(t, "a sandbox", func() bool { return len(w.names()) == 1 })
	if phase := w.pod(t).Status.Phase; phase != corev1.PodPending {
		t.Errorf("the phase is %s", phase)
	}
	_ = l.Close()
	w.phase(t, corev1.PodRunning)
	if !listens("127.82.0.3") {
		t.Error("it does not answer")
	}
}
