package reconcile

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/caisson-run/caisson/node/pod"
)

// refusedExit is the exit code of a container that never was.
const refusedExit = 128

// refuseDebug adds the ends of ephemeral containers to a status, and tells of each: they do not run
// here.
func (r *Reconciler) refuseDebug(p *corev1.Pod, s *corev1.PodStatus) {
	for i, c := range p.Spec.EphemeralContainers {
		if slices.ContainsFunc(s.EphemeralContainerStatuses, func(known corev1.ContainerStatus) bool { return known.Name == c.Name }) {
			continue
		}
		why := fmt.Sprintf("spec.ephemeralContainers[%d]: %s", i, pod.EphemeralText)
		r.Events.Event(p, corev1.EventTypeWarning, "CaissonRefused", why)
		now := metav1.Now()
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: refusedExit, Reason: "CaissonRefused", Message: why, StartedAt: now, FinishedAt: now,
			}},
		})
	}
}
