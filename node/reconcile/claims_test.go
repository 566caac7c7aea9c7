package reconcile

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/caisson-run/caisson/node/pod"
)

func claimed(readOnly bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: readOnly}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/data"}}
	}
}

func bound(change ...func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)) []runtime.Object {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "ns", UID: "cu"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef:               &corev1.ObjectReference{UID: "cu"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: pod.Driver, VolumeHandle: "handle"}},
	}}
	for _, f := range change {
		f(c, v)
	}
	return []runtime.Object{c, v}
}

func TestPodWithAClaim(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		w := newWorld(t, append(bound(), newPod(claimed(readOnly)))...)
		w.volumes["handle"] = true
		w.run(t)
		w.phase(t, corev1.PodRunning)
		m := w.specs[0].Mounts
		if len(m) != 1 || m[0].Type != "volume" || m[0].Source != "handle" || m[0].Target != "/data" || m[0].ReadOnly != readOnly {
			t.Errorf("the mounts are %v", m)
		}
		if err := w.client.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the sandbox is gone", func() bool { return len(w.names()) == 0 })
		if !w.volumes["handle"] {
			t.Error("the volume went with the pod")
		}
	}
}

func TestClaimsThatGiveNoVolume(t *testing.T) {
	for want, c := range map[string]struct {
		objects []runtime.Object
		refused bool // for good
	}{
		`the claim "data" is absent`: {},
		`the claim "data" is not bound`: {objects: bound(func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Status.Phase, c.Spec.VolumeName = corev1.ClaimPending, ""
		})},
		`the claim "data" has lost`: {objects: bound(func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Status.Phase = corev1.ClaimLost
		})},
		`is not that of the PersistentVolume "pv"`: {objects: bound(func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.UID = "another"
		})},
		"which is no volume of the driver": {objects: bound(func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Spec.CSI.Driver = "disk.example.com"
		}), refused: true},
		"the node n does not have the volume": {objects: bound(func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Spec.CSI.VolumeHandle = "of-another-node"
		})},
	} {
		t.Run(want, func(t *testing.T) {
			w := newWorld(t, append(c.objects, newPod(claimed(false)))...)
			w.volumes["handle"] = true
			w.run(t)
			eventually(t, want, func() bool {
				s := w.pod(t).Status
				if c.refused {
					return s.Phase == corev1.PodFailed && s.Reason == "CaissonRefused" && strings.Contains(s.Message, want)
				}
				return len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].State.Waiting != nil &&
					s.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerConfigError" &&
					strings.Contains(s.ContainerStatuses[0].State.Waiting.Message, want)
			})
			if len(w.specs) > 0 || len(w.volumes) != 1 {
				t.Errorf("started %v, volumes %v", w.specs, w.volumes)
			}
		})
	}
}

// TestClaimThatComes: a pod with spec.nodeName may be there before its claim.
func TestClaimThatComes(t *testing.T) {
	w := newWorld(t, newPod(claimed(false)))
	w.volumes["handle"] = true
	w.run(t)
	eventually(t, "it waits", func() bool { return len(w.pod(t).Status.ContainerStatuses) == 1 })
	for _, o := range bound() {
		if err := w.client.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	w.phase(t, corev1.PodRunning)
	if !slices.Equal(w.names(), []string{box1}) {
		t.Errorf("the sandboxes are %q", w.names())
	}
}
