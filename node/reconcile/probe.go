package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// prober asks one sandbox whether it is ready.
type prober struct {
	ready atomic.Bool
	stop  context.CancelFunc
}

// follow probes the containers of p that run, and no others. Probes begin anew in a new process.
func (r *Reconciler) follow(ctx context.Context, p *corev1.Pod, rs runs) {
	main := p.Spec.Containers[0]
	last, before := rs.of(main.Name)
	if before != nil {
		r.unfollow(before.sandbox)
	}
	if last == nil || main.ReadinessProbe == nil {
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
	pr.ready.Store(wasReady(p, last))
	r.probes[last.sandbox] = pr
	go r.probe(ctx, pr, p.UID, *last, numbered(main))
}

// wasReady says what an earlier process found of the same sandbox.
func wasReady(p *corev1.Pod, last *run) bool {
	for _, s := range p.Status.ContainerStatuses {
		if s.ContainerID == containerID(last) {
			return s.Ready
		}
	}
	return false
}

func (r *Reconciler) unfollow(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pr := r.probes[sandbox]; pr != nil {
		pr.stop()
		delete(r.probes, sandbox)
	}
}

func (r *Reconciler) isReady(c corev1.Container, sandbox string) bool {
	if c.ReadinessProbe == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pr := r.probes[sandbox]
	return pr != nil && pr.ready.Load()
}

func (r *Reconciler) probe(ctx context.Context, pr *prober, uid types.UID, last run, p *corev1.Probe) {
	sleep(ctx, time.Until(last.started.Add(seconds(p.InitialDelaySeconds))))
	good, bad := int32(0), int32(0)
	for ctx.Err() == nil {
		if r.Caisson.Probe(ctx, last.sandbox, p) == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		was := pr.ready.Load()
		if is := !was && good >= max(p.SuccessThreshold, 1) || was && bad < max(p.FailureThreshold, 1); is != was && ctx.Err() == nil {
			pr.ready.Store(is)
			r.queue.Add(uid)
		}
		sleep(ctx, seconds(max(p.PeriodSeconds, 1)))
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// numbered is a container's readiness probe with its port as a number.
func numbered(c corev1.Container) *corev1.Probe {
	p := c.ReadinessProbe.DeepCopy()
	resolve := func(port *intstr.IntOrString) {
		for _, known := range c.Ports {
			if port.Type == intstr.String && known.Name == port.StrVal {
				*port = intstr.FromInt32(known.ContainerPort)
			}
		}
	}
	if p.HTTPGet != nil {
		resolve(&p.HTTPGet.Port)
	}
	if p.TCPSocket != nil {
		resolve(&p.TCPSocket.Port)
	}
	return p
}
