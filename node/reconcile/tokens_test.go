package reconcile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/caisson-run/caisson/node/pod"
)

// issuer gives tokens "token 1", "token 2" and so on.
type issuer struct {
	mu    sync.Mutex
	life  time.Duration
	err   error
	asked []*authenticationv1.TokenRequest
}

func (i *issuer) react(a k8stesting.Action) (bool, runtime.Object, error) {
	create, ok := a.(k8stesting.CreateAction)
	if !ok || a.GetSubresource() != "token" {
		return false, nil, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return true, nil, i.err
	}
	r := create.GetObject().(*authenticationv1.TokenRequest)
	i.asked = append(i.asked, r)
	made := r.DeepCopy()
	made.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprintf("token %d", len(i.asked)), ExpirationTimestamp: metav1.NewTime(time.Now().Add(i.life))}
	return true, made, nil
}

func (i *issuer) set(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.asked)
}

func withToken(p *corev1.Pod) {
	seconds := int64(600)
	p.Spec.ServiceAccountName = "robot"
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: "vault", ExpirationSeconds: &seconds, Path: "token"}}}}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
}

func TestTokens(t *testing.T) {
	w := newWorld(t, newPod(withToken))
	i := &issuer{life: 10 * time.Minute}
	w.client.PrependReactor("create", "serviceaccounts", i.react)
	r, _ := w.run(t)
	w.phase(t, corev1.PodRunning)
	file := filepath.Join(w.config.Files, uid1, "v", "token")
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "token 1" {
		t.Fatalf("the file is %q, %v", text, err)
	}
	s := i.asked[0].Spec
	if s.Audiences[0] != "vault" || *s.ExpirationSeconds != 600 || s.BoundObjectRef.UID != uid1 || s.BoundObjectRef.Name != "p" || s.BoundObjectRef.Kind != "Pod" {
		t.Errorf("asked for %+v", s)
	}
	time.Sleep(5 * w.config.Refresh) // nothing announces that a look changed nothing
	if n := i.count(); n != 1 {
		t.Errorf("a fresh token was renewed %d times", n-1)
	}
	r.mu.Lock()
	for k, old := range r.tokens { // as after four fifths of its life
		old.renew = time.Now()
		r.tokens[k] = old
	}
	r.mu.Unlock()
	eventually(t, "the file has a new token", func() bool {
		text, _ := os.ReadFile(file)
		return string(text) == "token 2"
	})
	if err := w.client.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token is forgotten", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.tokens) == 0
	})
}

// TestTokenOfAnAPIServerThatIsAway: the last one counts to its end, and the first one is waited for.
func TestTokenOfAnAPIServerThatIsAway(t *testing.T) {
	w := newWorld(t, newPod(withToken))
	i := &issuer{life: time.Second, err: errors.New("the API server is away")}
	w.client.PrependReactor("create", "serviceaccounts", i.react)
	r := New(w.config)
	p, want := newPod(withToken), pod.Token{Audience: "vault", Seconds: 600}
	if _, err := r.token(t.Context(), p, want); err == nil {
		t.Error("a token of nobody")
	}
	i.set(func() { i.err = nil })
	if text, err := r.token(t.Context(), p, want); text != "token 1" || err != nil {
		t.Errorf("token = %q, %v", text, err)
	}
	i.set(func() { i.err = errors.New("the API server is away") })
	r.Refresh = time.Hour // its renewal is due
	if text, err := r.token(t.Context(), p, want); text != "token 1" || err != nil {
		t.Errorf("token = %q, %v", text, err)
	}
	eventually(t, "it has ended", func() bool {
		_, err := r.token(t.Context(), p, want)
		return err != nil
	})
}

// TestNoToken starts nothing.
func TestNoToken(t *testing.T) {
	w := newWorld(t, newPod(withToken))
	i := &issuer{err: errors.New(`serviceaccounts "robot" not found`)}
	w.client.PrependReactor("create", "serviceaccounts", i.react)
	w.run(t)
	eventually(t, "it waits", func() bool {
		s := w.pod(t).Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Message == `serviceaccounts "robot" not found`
	})
	if len(w.specs) > 0 {
		t.Errorf("started %v", w.specs)
	}
}
