package reconcile

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// registry is a daemon without an image until a pull of it ends.
type registry struct {
	*daemon
	asked chan *caissonv1.PullImageRequest
	ends  chan error
}

func (d registry) PullImage(ctx context.Context, r *caissonv1.PullImageRequest, _ func(*caissonv1.ImageProgress)) (*caissonv1.ImageProgress, error) {
	d.asked <- r
	select {
	case err := <-d.ends:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func pullingPod() *corev1.Pod {
	return newPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "registry.example/team/tool", corev1.PullAlways
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}}
	})
}

// TestPullHoldsNoWorker has one worker, and a pull that does not end.
func TestPullHoldsNoWorker(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}, Data: map[string][]byte{
		corev1.DockerConfigJsonKey: []byte(`{"auths":{"https://registry.example":{"auth":"dXNlcjpwYXNz"}}}`)}}
	w := newWorld(t, pullingPod(), secret)
	d := registry{w.daemon, make(chan *caissonv1.PullImageRequest, 10), make(chan error)}
	w.config.Caisson, w.config.Workers = d, 1
	w.run(t)
	asked := <-d.asked
	if asked.Credentials.GetUsername() != "user" || asked.Credentials.GetPassword() != "pass" {
		t.Errorf("pulled with %v", asked)
	}
	other := newPod(func(p *corev1.Pod) { p.Name, p.UID = "other", "33333333-3333-3333-3333-333333333333" })
	if _, err := w.client.CoreV1().Pods("ns").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another pod runs", func() bool { return len(w.names()) == 1 })
	d.ends <- api.Explain(sbxerr.New(sbxerr.PullRefused, "fake", "no such registry"))
	eventually(t, "the error is told", func() bool {
		s := w.pod(t).Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "ErrImagePull"
	})
	<-d.asked
	d.ends <- nil
	w.phase(t, corev1.PodRunning)
}

// TestPullEndsWithItsPod: nothing goes on for a pod that is gone.
func TestPullEndsWithItsPod(t *testing.T) {
	w := newWorld(t, pullingPod())
	d := registry{w.daemon, make(chan *caissonv1.PullImageRequest, 10), make(chan error)}
	w.config.Caisson = d
	r, _ := w.run(t)
	<-d.asked
	if err := w.client.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pull is forgotten", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.pulls) == 0
	})
}

func TestDebugIsRefusedAlone(t *testing.T) {
	w := newWorld(t, newPod())
	w.run(t)
	p := w.phase(t, corev1.PodRunning)
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "base"}}}
	if _, err := w.client.CoreV1().Pods("ns").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refusal", func() bool {
		s := w.pod(t).Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Terminated != nil && s[0].State.Terminated.Reason == "CaissonRefused"
	})
	if p := w.pod(t); p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s", p.Status.Phase)
	}
	told := false
	for events := w.config.Events.(*record.FakeRecorder).Events; len(events) > 0; {
		told = strings.Contains(<-events, "spec.ephemeralContainers[0]") || told
	}
	if !told {
		t.Error("no event names the field")
	}
}
