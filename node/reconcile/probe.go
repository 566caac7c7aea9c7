package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// prober is what hooks and probes found of one sandbox.
type prober struct {
	hooked, started, ready atomic.Bool
	stop                   context.CancelFunc
}

// follow watches over the containers of p that run, and no others.
func (r *Reconciler) follow(ctx context.Context, p *corev1.Pod, rs runs) {
	main := p.Spec.Containers[0]
	last, before := rs.of(main.Name)
	if before != nil {
		r.unfollow(before.sandbox)
	}
	if last == nil || !isWatched(main) {
		return
	}
	if last.ended {
		r.unfollow(last.sandbox)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probes[last.sandbox] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	pr := &prober{stop: cancel}
	known := toldOf(p, last)
	pr.hooked.Store(hookOf(main, true) == nil || known.State.Running != nil)
	pr.started.Store(main.StartupProbe == nil || known.Started != nil && *known.Started)
	pr.ready.Store(known.Ready)
	r.probes[last.sandbox] = pr
	go r.watchOver(ctx, pr, p, *last, *main.DeepCopy())
}

func isWatched(c corev1.Container) bool {
	return c.ReadinessProbe != nil || c.LivenessProbe != nil || c.StartupProbe != nil || hookOf(c, true) != nil
}

// toldOf is what an earlier process, or this one, told of a run.
func toldOf(p *corev1.Pod, last *run) corev1.ContainerStatus {
	for _, s := range p.Status.ContainerStatuses {
		if s.ContainerID == containerID(last) {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

func (r *Reconciler) unfollow(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pr := r.probes[sandbox]; pr != nil {
		pr.stop()
		delete(r.probes, sandbox)
	}
}

// found is what is known of a sandbox that runs.
func (r *Reconciler) found(c corev1.Container, sandbox string) (hooked, started, ready bool) {
	if !isWatched(c) {
		return true, true, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pr := r.probes[sandbox]
	if pr == nil {
		return hookOf(c, true) == nil, c.StartupProbe == nil, false
	}
	hooked, started = pr.hooked.Load(), pr.started.Load()
	return hooked, started, hooked && started && (c.ReadinessProbe == nil || pr.ready.Load())
}

// watchOver runs a container's hook and then its probes, the one for the start before the others.
func (r *Reconciler) watchOver(ctx context.Context, pr *prober, p *corev1.Pod, last run, c corev1.Container) {
	if !pr.hooked.Load() {
		if err := r.hook(ctx, last.sandbox, c, hookOf(c, true), forever); err != nil {
			if ctx.Err() == nil {
				r.Events.Eventf(p, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: %v", err)
				r.killContainer(ctx, p, last, nil, "failed its postStart hook")
			}
			return
		}
		pr.hooked.Store(true)
		r.queue.Add(p.UID)
	}
	if !pr.started.Load() {
		if !r.awaitStart(ctx, pr, p, last, c) {
			return
		}
	}
	if c.LivenessProbe != nil {
		go r.ask(ctx, p, last, "Liveness", numbered(c, c.LivenessProbe), true, func(bool) bool {
			r.killContainer(ctx, p, last, c.LivenessProbe, "failed liveness probe, will be restarted")
			return false
		})
	}
	if c.ReadinessProbe != nil {
		r.ask(ctx, p, last, "Readiness", numbered(c, c.ReadinessProbe), pr.ready.Load(), func(good bool) bool {
			pr.ready.Store(good)
			r.queue.Add(p.UID)
			return true
		})
	}
}

// awaitStart probes until a container has started, or ends it.
func (r *Reconciler) awaitStart(ctx context.Context, pr *prober, p *corev1.Pod, last run, c corev1.Container) bool {
	probe := numbered(c, c.StartupProbe)
	sleep(ctx, time.Until(last.started.Add(seconds(probe.InitialDelaySeconds))))
	for bad := int32(0); ctx.Err() == nil; sleep(ctx, seconds(max(probe.PeriodSeconds, 1))) {
		healthy, known := r.askOnce(ctx, p, last, "Startup", probe)
		switch {
		case !known:
			continue
		case healthy:
			pr.started.Store(true)
			r.queue.Add(p.UID)
			return true
		}
		if bad++; bad >= max(probe.FailureThreshold, 1) {
			r.killContainer(ctx, p, last, c.StartupProbe, "failed startup probe, will be restarted")
			return false
		}
	}
	return false
}

// ask probes until ctx ends or changed says so. was is the answer that counts at first; another
// counts once it was given often enough, and is told then.
func (r *Reconciler) ask(ctx context.Context, p *corev1.Pod, last run, what string, probe *corev1.Probe, was bool, changed func(bool) bool) {
	sleep(ctx, time.Until(last.started.Add(seconds(probe.InitialDelaySeconds))))
	for others := int32(0); ctx.Err() == nil; sleep(ctx, seconds(max(probe.PeriodSeconds, 1))) {
		healthy, known := r.askOnce(ctx, p, last, what, probe)
		if !known {
			continue
		}
		if healthy == was {
			others = 0
			continue
		}
		enough := max(probe.FailureThreshold, 1)
		if healthy {
			enough = max(probe.SuccessThreshold, 1)
		}
		if others++; others < enough {
			continue
		}
		was, others = healthy, 0
		if ctx.Err() != nil || !changed(healthy) {
			return
		}
	}
}

// askOnce is one probe. It is not known what a daemon that is away would say.
func (r *Reconciler) askOnce(ctx context.Context, p *corev1.Pod, last run, what string, probe *corev1.Probe) (healthy, known bool) {
	healthy, why, err := r.Caisson.Probe(ctx, last.sandbox, probe)
	if err != nil || ctx.Err() != nil {
		return false, false
	}
	if !healthy {
		r.Events.Eventf(p, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", what, why)
	}
	return healthy, true
}

// killContainer ends a container of a pod that goes on.
func (r *Reconciler) killContainer(ctx context.Context, p *corev1.Pod, last run, probe *corev1.Probe, why string) {
	r.Events.Eventf(p, corev1.EventTypeNormal, "Killing", "Container %s %s", last.container, why)
	left := grace(p)
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		left = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
	}
	r.stop(context.WithoutCancel(ctx), p, runs{last}, left)
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// numbered is a probe of a container with its port as a number.
func numbered(c corev1.Container, probe *corev1.Probe) *corev1.Probe {
	p := probe.DeepCopy()
	if p.HTTPGet != nil {
		p.HTTPGet.Port = numberOf(c, p.HTTPGet.Port)
	}
	if p.TCPSocket != nil {
		p.TCPSocket.Port = numberOf(c, p.TCPSocket.Port)
	}
	return p
}

func numberOf(c corev1.Container, port intstr.IntOrString) intstr.IntOrString {
	for _, known := range c.Ports {
		if port.Type == intstr.String && known.Name == port.StrVal {
			return intstr.FromInt32(known.ContainerPort)
		}
	}
	return port
}
