package reconcile

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/caisson-run/caisson/node/pod"
)

// The back-off of restarts, as the kubelet's.
const (
	firstBackoff = 10 * time.Second
	lastBackoff  = 5 * time.Minute
	forgiven     = 10 * time.Minute // a run so long begins a new back-off
)

// start is a container to be started.
type start struct {
	container    corev1.Container
	try, backoff int
}

// step is what a pod needs now. At most one of start and wait is set.
type step struct {
	start *start
	wait  time.Duration // until the back-off is over
	phase corev1.PodPhase
}

// next decides by what ran so far. It is pure.
func next(p *corev1.Pod, rs runs, now time.Time) step {
	main := p.Spec.Containers[0]
	if last, _ := rs.of(main.Name); last == nil {
		for _, c := range p.Spec.InitContainers {
			if s, over := after(p, c, rs, now, true); !over {
				return s
			}
		}
	}
	s, _ := after(p, main, rs, now, false)
	return s
}

// after says what follows the last run of a container. over means that an init container is done.
func after(p *corev1.Pod, c corev1.Container, rs runs, now time.Time, init bool) (s step, over bool) {
	last, _ := rs.of(c.Name)
	phase := corev1.PodRunning
	if init {
		phase = corev1.PodPending
	}
	switch {
	case last == nil:
		return step{start: &start{container: c}, phase: corev1.PodPending}, false
	case !last.ended:
		return step{phase: phase}, false
	case last.exit == 0 && (init || p.Spec.RestartPolicy != corev1.RestartPolicyAlways):
		return step{phase: corev1.PodSucceeded}, true
	case p.Spec.RestartPolicy == corev1.RestartPolicyNever:
		return step{phase: corev1.PodFailed}, false
	}
	backoff := last.backoff
	if last.end.Sub(last.started) >= forgiven {
		backoff = 0
	}
	if wait := last.end.Add(delay(backoff)).Sub(now); wait > 0 {
		return step{wait: wait, phase: phase}, false
	}
	return step{start: &start{container: c, try: last.try + 1, backoff: backoff + 1}, phase: phase}, false
}

// delay is how long a container waits after n restarts. The first restart is at once.
func delay(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return min(firstBackoff<<min(n-1, 10), lastBackoff)
}

func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// needs are what the scheduler counts of a pod.
type needs struct{ milliCPU, memory, storage int64 }

func (n needs) plus(o needs) needs {
	return needs{n.milliCPU + o.milliCPU, n.memory + o.memory, n.storage + o.storage}
}

// requests of a pod. memory is that of a container without a word about it.
func requests(p *corev1.Pod, memory int64) (n needs) {
	for _, c := range pod.Containers(p) { // one runs at a time
		asked := c.Resources.Requests
		mem := asked.Memory().Value()
		if mem == 0 {
			mem = memory
		}
		n = needs{max(n.milliCPU, asked.Cpu().MilliValue()), max(n.memory, mem), max(n.storage, asked.StorageEphemeral().Value())}
	}
	return n
}
