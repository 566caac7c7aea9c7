package reconcile

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// status is what a pod is now. What others wrote into it stays.
func (r *Reconciler) status(p *corev1.Pod, rs runs, phase corev1.PodPhase) corev1.PodStatus {
	s := *p.Status.DeepCopy()
	s.Phase, s.ObservedGeneration = phase, p.Generation
	if s.StartTime == nil {
		s.StartTime = &metav1.Time{Time: time.Now().Truncate(time.Second)}
	}
	r.setAddresses(p, &s)
	n := r.noteOf(p.UID)
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	initialized := true
	for _, c := range p.Spec.InitContainers {
		cs := containerStatus(p, c, rs, n, initialized, phase)
		initialized = initialized && cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
		cs.Ready = initialized
		s.InitContainerStatuses = append(s.InitContainerStatuses, cs)
	}
	main := p.Spec.Containers[0]
	cs := containerStatus(p, main, rs, n, initialized, phase)
	if last, _ := rs.of(main.Name); last != nil {
		initialized = true
		r.addFound(&cs, &s, main, last)
	}
	s.ContainerStatuses = []corev1.ContainerStatus{cs}
	setConditions(p, &s, initialized, cs.Ready)
	r.refuseDebug(p, &s)
	return s
}

// addFound adds what hooks and probes found of a run. Before its hook is over it does not count as
// running.
func (r *Reconciler) addFound(cs *corev1.ContainerStatus, s *corev1.PodStatus, c corev1.Container, last *run) {
	if cs.State.Running == nil {
		return
	}
	hooked, started, ready := r.found(c, last.sandbox)
	cs.Started, cs.Ready = &started, ready
	if hooked {
		return
	}
	started = false
	cs.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	if last.try == 0 && s.Phase == corev1.PodRunning {
		s.Phase = corev1.PodPending
	}
}

func (r *Reconciler) setAddresses(p *corev1.Pod, s *corev1.PodStatus) {
	s.HostIP, s.HostIPs = r.HostIP, []corev1.HostIP{{IP: r.HostIP}}
	if r.Addresses == nil {
		return
	}
	if ip := r.Addresses.Of(p.UID); ip != "" {
		s.PodIP, s.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	}
}

// containerStatus is the state of a container. turn says that it may run now.
func containerStatus(p *corev1.Pod, c corev1.Container, rs runs, n note, turn bool, phase corev1.PodPhase) corev1.ContainerStatus {
	started := false
	cs := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image, Started: &started}
	last, before := rs.of(c.Name)
	if last == nil {
		cs.State.Waiting = waiting(n, turn)
		if n.code != 0 && turn && p.Spec.RestartPolicy == corev1.RestartPolicyNever {
			now := metav1.Now()
			cs.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: n.code, Reason: n.reason, Message: n.message, StartedAt: now, FinishedAt: now}}
		}
		return cs
	}
	cs.RestartCount, cs.ContainerID = int32(last.try), containerID(last)
	if before != nil {
		cs.LastTerminationState.Terminated = terminated(before)
	}
	switch {
	case !last.ended:
		started = true
		cs.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: last.started}}
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed || last.exit == 0 && p.Spec.RestartPolicy != corev1.RestartPolicyAlways,
		p.DeletionTimestamp != nil, isInit(p, c) && last.exit == 0:
		cs.State.Terminated = terminated(last)
	default:
		cs.LastTerminationState.Terminated = terminated(last)
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "the back-off before the next start is not over"}
		if n.reason != "" {
			cs.State.Waiting = waiting(n, true)
		}
	}
	return cs
}

func isInit(p *corev1.Pod, c corev1.Container) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
}

func waiting(n note, turn bool) *corev1.ContainerStateWaiting {
	switch {
	case !turn:
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	case n.reason != "":
		return &corev1.ContainerStateWaiting{Reason: n.reason, Message: n.message}
	}
	return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

func containerID(r *run) string {
	if r.sandbox == "" {
		return ""
	}
	return "caisson://" + r.sandbox
}

func terminated(r *run) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ExitCode: r.exit, Signal: r.signal, Reason: r.reason, Message: r.message, ContainerID: containerID(r),
		StartedAt: metav1.Time{Time: r.started}, FinishedAt: metav1.Time{Time: r.end},
	}
}

func setConditions(p *corev1.Pod, s *corev1.PodStatus, initialized, ready bool) {
	over := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	because := ""
	switch {
	case s.Phase == corev1.PodSucceeded:
		because = "PodCompleted"
	case s.Phase == corev1.PodFailed:
		because = "PodFailed"
	case !ready:
		because = "ContainersNotReady"
	}
	containers := ready && !over
	set(s, corev1.PodReadyToStartContainers, !over, "")
	set(s, corev1.PodInitialized, initialized || s.Phase == corev1.PodSucceeded, "")
	set(s, corev1.ContainersReady, containers, because)
	for _, gate := range p.Spec.ReadinessGates {
		if !containers {
			break
		}
		if !isTrue(s.Conditions, gate.ConditionType) {
			containers, because = false, "ReadinessGatesNotReady"
		}
	}
	set(s, corev1.PodReady, containers, because)
}

func isTrue(conditions []corev1.PodCondition, of corev1.PodConditionType) bool {
	return slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == of && c.Status == corev1.ConditionTrue })
}

// set changes one condition. Its time is that of its last change.
func set(s *corev1.PodStatus, of corev1.PodConditionType, holds bool, because string) {
	c := corev1.PodCondition{Type: of, Status: corev1.ConditionFalse, Reason: because, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	if holds {
		c.Status, c.Reason = corev1.ConditionTrue, ""
	}
	at := slices.IndexFunc(s.Conditions, func(old corev1.PodCondition) bool { return old.Type == of })
	if at < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if old := s.Conditions[at]; old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	s.Conditions[at] = c
}

// fail ends a pod that does not run, or must not.
func (r *Reconciler) fail(ctx context.Context, p *corev1.Pod, rs runs, reason, message string) error {
	s := r.status(p, rs, corev1.PodFailed)
	if len(rs) == 0 && r.noteOf(p.UID).code == 0 { // of containers that never were there is nothing to tell
		s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	}
	s.Reason, s.Message = reason, message
	return r.tell(ctx, p, s)
}

// tell writes a status if it differs from that of the API server.
func (r *Reconciler) tell(ctx context.Context, p *corev1.Pod, s corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(p.Status, s) {
		return nil
	}
	patch, err := statusPatch(p, s)
	if err != nil || patch == nil {
		return err
	}
	r.mu.Lock()
	r.lastTold[p.UID] = slices.Concat(s.InitContainerStatuses, s.ContainerStatuses)
	r.mu.Unlock()
	_, err = r.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another pod has the name: that one's UID is not ours
		return nil
	}
	return err
}

// statusPatch holds the pod's UID, so that it never meets a new pod of the same name. It is nil
// where only parts of a second differ, which the API server does not keep.
func statusPatch(p *corev1.Pod, s corev1.PodStatus) ([]byte, error) {
	from, to := &corev1.Pod{Status: p.Status}, &corev1.Pod{Status: s}
	a, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	diff, err := strategicpatch.CreateTwoWayMergePatch(a, b, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	if err := json.Unmarshal(diff, &patch); err != nil || len(patch) == 0 {
		return nil, err
	}
	maps.Copy(patch, map[string]any{"metadata": map[string]any{"uid": p.UID}})
	return json.Marshal(patch)
}

// lastOf returns the newest run of a container, or the one before it.
func lastOf(rs runs, container string, previous bool) *run {
	last, before := rs.of(container)
	if previous {
		return before
	}
	return last
}
