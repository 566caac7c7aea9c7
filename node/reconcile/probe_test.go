package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

func probeOf(command string) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
}

// answers makes the daemon answer each probe by its command.
func (w *world) answers(f func(ref, command string) (bool, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probed = func(_ context.Context, ref string, p *corev1.Probe) (bool, string, error) {
		healthy, err := f(ref, p.Exec.Command[0])
		return healthy, "because of " + p.Exec.Command[0], err
	}
}

// told says that an event was recorded. It takes all that came so far.
func (w *world) told(text string) func() bool {
	return func() bool {
		for events := w.config.Events.(*record.FakeRecorder).Events; len(events) > 0; {
			if strings.Contains(<-events, text) {
				return true
			}
		}
		return false
	}
}

func TestLivenessRestarts(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		p.Spec.Containers[0].LivenessProbe = probeOf("alive")
	}))
	w.answers(func(ref, _ string) (bool, error) { return ref != "id-"+box1, nil })
	w.run(t)
	eventually(t, "the event", w.told("Unhealthy Liveness probe failed: because of alive"))
	second := uid1 + "-0-1"
	eventually(t, "the second start", func() bool { return slices.Contains(w.names(), second) })
	eventually(t, "its status", func() bool {
		s := w.pod(t).Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == 1 && s[0].Ready && s[0].LastTerminationState.Terminated != nil
	})
}

func TestDaemonThatIsAwayKillsNothing(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = probeOf("alive") }))
	asked := make(chan bool, 10)
	w.answers(func(string, string) (bool, error) {
		asked <- true
		return false, errors.New("the daemon is away")
	})
	w.run(t)
	for range 3 {
		<-asked
	}
	if len(w.graces) > 0 {
		t.Error("the container was stopped")
	}
	w.answers(func(string, string) (bool, error) { return false, nil })
	eventually(t, "the stop", func() bool { return len(w.names()) == 1 && w.pod(t).Status.Phase == corev1.PodFailed })
}

func TestStartupComesFirst(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.StartupProbe, c.ReadinessProbe = probeOf("startup"), probeOf("ready")
		c.StartupProbe.FailureThreshold = 100
	}))
	up := make(chan bool)
	asked := make(chan string, 100)
	w.answers(func(_, command string) (bool, error) {
		asked <- command
		select {
		case <-up:
			return true, nil
		default:
			return false, nil
		}
	})
	w.run(t)
	s := w.phase(t, corev1.PodRunning).Status.ContainerStatuses[0]
	if s.Ready || *s.Started {
		t.Errorf("the status is %+v", s)
	}
	for range 2 {
		if command := <-asked; command != "startup" {
			t.Errorf("asked %s before the start", command)
		}
	}
	close(up)
	eventually(t, "it is ready", func() bool { return w.pod(t).Status.ContainerStatuses[0].Ready })
}

func TestHooks(t *testing.T) {
	hook := func(command string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
	}
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook("after"), PreStop: hook("before")}
	}))
	release := make(chan bool)
	var early bool
	w.answers(func(_, command string) (bool, error) {
		<-release
		w.mu.Lock()
		defer w.mu.Unlock()
		early = early || command == "before" && len(w.graces) > 0
		return true, nil
	})
	w.run(t)
	eventually(t, "the container is made", func() bool { return len(w.pod(t).Status.ContainerStatuses) == 1 })
	if p := w.pod(t); p.Status.Phase != corev1.PodPending || p.Status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("before its hook it is %+v", p.Status)
	}
	release <- true
	w.phase(t, corev1.PodRunning)
	w.deleted(t, 9*time.Second)
	release <- true
	eventually(t, "nothing is left", func() bool { return len(w.names()) == 0 })
	if early || len(w.graces) != 1 || w.graces[0] > 9*time.Second {
		t.Errorf("stopped with %v, before the hook: %t", w.graces, early)
	}
}

func TestFailedPostStartEndsTheContainer(t *testing.T) {
	w := newWorld(t, newPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"after"}}}}
	}))
	w.answers(func(string, string) (bool, error) { return false, nil })
	w.run(t)
	w.phase(t, corev1.PodFailed)
	eventually(t, "the event", w.told("FailedPostStartHook PostStartHook failed: because of after"))
}
