package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestPodRunsToItsEnd(t *testing.T) {
	w := newWorld(t, newPod())
	r, _ := w.run(t)
	p := w.phase(t, corev1.PodRunning)
	if p.Status.PodIP != "10.0.0.1" || p.Status.HostIP != "192.0.2.1" || p.Status.StartTime == nil {
		t.Errorf("the status is %+v", p.Status)
	}
	if sandbox, err := r.Find(t.Context(), "ns", "p", "c", false); err != nil || sandbox != "id-"+box1 {
		t.Errorf("Find = %q, %v", sandbox, err)
	}
	w.finish(box1, 0)
	p = w.phase(t, corev1.PodSucceeded)
	if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.Reason != "Completed" {
		t.Errorf("the container is %+v", p.Status.ContainerStatuses[0].State)
	}
	if !slices.Equal(w.names(), []string{box1}) {
		t.Errorf("sandboxes %q: the ended one has the logs", w.names())
	}
}

func TestExitCodeFailsAPod(t *testing.T) {
	w := newWorld(t, newPod())
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.finish(box1, 3)
	if end := w.phase(t, corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated; end.ExitCode != 3 || end.Reason != "Error" {
		t.Errorf("the container ended by %+v", end)
	}
}

func TestRefusedPodStartsNothing(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v"}}
	}))
	w.run(t)
	s := w.phase(t, corev1.PodFailed).Status
	if s.Reason != "CaissonRefused" || !strings.Contains(s.Message, "spec.hostNetwork: ") || !strings.Contains(s.Message, "spec.containers[0].volumeDevices: ") {
		t.Errorf("the status is %s: %s", s.Reason, s.Message)
	}
	if len(w.names()) > 0 || len(w.ips.of) > 0 {
		t.Errorf("%q and %q were made", w.names(), w.ips.of)
	}
}

func TestPodThatDoesNotFit(t *testing.T) {
	for reason, asked := range map[string]corev1.ResourceList{
		"OutOfmemory":            {corev1.ResourceMemory: resource.MustParse("5Gi")},
		"OutOfcpu":               {corev1.ResourceCPU: resource.MustParse("5")},
		"OutOfephemeral-storage": {corev1.ResourceEphemeralStorage: resource.MustParse("5Gi")},
	} {
		w := newWorld(t, newPod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = asked }))
		w.run(t)
		if s := w.phase(t, corev1.PodFailed).Status; s.Reason != reason {
			t.Errorf("the reason is %s, not %s", s.Reason, reason)
		}
	}
}

func TestRestarts(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }))
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.finish(box1, 1)
	second := uid1 + "-0-1"
	eventually(t, "the second start", func() bool { return slices.Contains(w.names(), second) })
	w.finish(second, 1)
	eventually(t, "a back-off", func() bool {
		s := w.pod(t).Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	p := w.pod(t)
	if s := p.Status.ContainerStatuses[0]; s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s with %+v", p.Status.Phase, s)
	}
}

func TestInitContainersComeFirst(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "base"}}
	}))
	w.run(t)
	eventually(t, "the init container", func() bool { return slices.Equal(w.names(), []string{box1}) })
	w.finish(box1, 0)
	eventually(t, "the container", func() bool { return slices.Contains(w.names(), uid1+"-1-0") })
	w.phase(t, corev1.PodRunning)
}

// deleted marks the pod as the API server does for a deletion with grace.
func (w *world) deleted(t *testing.T, grace time.Duration) {
	t.Helper()
	seconds := int64(grace / time.Second)
	at := metav1.Time{Time: time.Now().Add(grace)}
	eventually(t, "the deletion", func() bool { // the fake's patch of a status may undo it
		p := w.pod(t)
		if p.UID == "" || p.DeletionTimestamp != nil {
			return true
		}
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &seconds
		p.Finalizers = []string{"caisson.run/test"} // the fake drops objects that are being deleted without any
		_ = w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, "ns")
		time.Sleep(20 * time.Millisecond) // a status that is under way may undo it now
		return false
	})
}

func TestDeletionWithGrace(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}))
	var options []metav1.DeleteOptions
	w.client.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		options = append(options, a.(k8stesting.DeleteActionImpl).DeleteOptions)
		return false, nil, nil
	})
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.deleted(t, 7*time.Second)
	eventually(t, "nothing is left", func() bool { return len(w.names()) == 0 && len(w.volumes) == 0 && w.ips.Of(uid1) == "" })
	if len(w.graces) == 0 || w.graces[0] < 5*time.Second || w.graces[0] > 7*time.Second {
		t.Errorf("the command had %v", w.graces)
	}
	if len(options) == 0 || *options[0].GracePeriodSeconds != 0 || *options[0].Preconditions.UID != uid1 {
		t.Errorf("deleted with %+v", options)
	}
}

func TestForcedDeletionKills(t *testing.T) {
	w := newWorld(t, newPod())
	w.run(t)
	w.phase(t, corev1.PodRunning)
	if err := w.client.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sandbox is gone", func() bool { return len(w.names()) == 0 })
}

func TestRestartOfTheProgramAdopts(t *testing.T) {
	w := newWorld(t, newPod())
	_, stop := w.run(t)
	w.phase(t, corev1.PodRunning)
	stop()
	w.finish(box1, 9)
	w.ips.of = map[types.UID]string{}
	w.run(t)
	p := w.phase(t, corev1.PodFailed)
	if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 9 {
		t.Errorf("the container is %+v", p.Status.ContainerStatuses[0])
	}
	if p.Status.PodIP != "10.0.0.1" {
		t.Errorf("its address is %q", p.Status.PodIP)
	}
	eventually(t, "its address is free", func() bool { return w.ips.Of(uid1) == "" })
	if len(w.specs) != 1 {
		t.Errorf("it was started %d times", len(w.specs))
	}
}

func TestOrphansGoOnlyWhenTheAPIServerSaysSo(t *testing.T) {
	w := newWorld(t)
	const gone = "22222222-2222-2222-2222-222222222222"
	w.boxes[gone+"-0-0"] = boxOf(gone, "")
	w.volumes[gone+".v"], w.volumes["mine"] = true, true
	away := true
	asked := make(chan struct{}, 1000)
	synced := false
	w.client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		if synced && away {
			asked <- struct{}{}
			return true, nil, errors.New("the API server is away")
		}
		synced = true
		return false, nil, nil
	})
	w.run(t)
	for range 3 {
		<-asked
	}
	if len(w.names()) != 1 {
		t.Fatal("removed while the API server was away")
	}
	away = false
	eventually(t, "the orphan is gone", func() bool { return len(w.names()) == 0 })
	eventually(t, "its volume is gone, and no other", func() bool { return len(w.volumes) == 1 && w.volumes["mine"] })
}

func TestSandboxThatVanished(t *testing.T) {
	w := newWorld(t, newPod())
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.mu.Lock()
	delete(w.boxes, box1)
	w.mu.Unlock()
	if end := w.phase(t, corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated; end.Reason != "ContainerStatusUnknown" || end.ExitCode != 137 {
		t.Errorf("the container ended by %+v", end)
	}
}

func TestFailedStarts(t *testing.T) {
	for _, c := range []struct {
		err    error
		phase  corev1.PodPhase
		reason string // of the pod, or of the waiting container
	}{
		{sbxerr.New(sbxerr.Config, "fake", "no"), corev1.PodFailed, "CaissonRefused"},
		{sbxerr.New(sbxerr.CommandAbsent, "fake", "no"), corev1.PodFailed, "StartError"},
		{sbxerr.New(sbxerr.Busy, "fake", "full"), corev1.PodPending, "CreateContainerError"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t, newPod())
			w.runErr = api.Explain(c.err)
			w.run(t)
			eventually(t, c.reason, func() bool {
				s := w.pod(t).Status
				waits := len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].State.Waiting != nil && s.ContainerStatuses[0].State.Waiting.Reason == c.reason
				return s.Phase == c.phase && (s.Reason == c.reason || waits)
			})
			if c.phase == corev1.PodFailed {
				return
			}
			w.mu.Lock()
			w.runErr = nil
			w.mu.Unlock()
			w.phase(t, corev1.PodRunning)
		})
	}
}

func TestDeadline(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) { one := int64(1); p.Spec.ActiveDeadlineSeconds = &one }))
	w.run(t)
	w.phase(t, corev1.PodRunning)
	if s := w.phase(t, corev1.PodFailed).Status; s.Reason != "DeadlineExceeded" {
		t.Errorf("the reason is %q", s.Reason)
	}
}

// TestOldLogsGo: a node for one pod keeps the logs of three.
func TestOldLogsGo(t *testing.T) {
	w := newWorld(t)
	w.config.Allocatable = func() corev1.ResourceList { return corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")} }
	for i := range 5 {
		uid := fmt.Sprintf("44444444-4444-4444-4444-44444444444%d", i)
		b := boxOf(uid, "")
		b.State, b.ExitedAt = "exited", timestamppb.New(time.Unix(int64(1000+i), 0))
		w.boxes[b.Name] = b
		p := newPod(func(p *corev1.Pod) {
			p.Name, p.UID, p.Status.Phase = fmt.Sprintf("p%d", i), types.UID(uid), corev1.PodSucceeded
		})
		if _, err := w.client.CoreV1().Pods("ns").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.run(t)
	eventually(t, "three are left", func() bool { return len(w.names()) == 3 })
	if first := w.names()[0]; first != "44444444-4444-4444-4444-444444444442-0-0" {
		t.Errorf("the oldest is %s", first)
	}
}

func TestStatusKeepsWhatOthersWrote(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		p.Status.QOSClass = corev1.PodQOSBurstable
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	}))
	w.run(t)
	s := w.phase(t, corev1.PodRunning).Status
	if s.QOSClass != corev1.PodQOSBurstable || !isTrue(s.Conditions, corev1.PodScheduled) || !isTrue(s.Conditions, corev1.PodReady) {
		t.Errorf("the status is %+v", s)
	}
}

func TestDelay(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 0, 1: 10 * time.Second, 2: 20 * time.Second, 6: 5 * time.Minute, 90: 5 * time.Minute} {
		if got := delay(n); got != want {
			t.Errorf("delay(%d) = %s, not %s", n, got, want)
		}
	}
}
