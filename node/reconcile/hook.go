package reconcile

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// forever is longer than any hook.
const forever = 24 * time.Hour

// leastGrace is what a command has after its preStop hook, as the kubelet gives.
const leastGrace = 2 * time.Second

// hookOf returns a hook of a container, or nil.
func hookOf(c corev1.Container, postStart bool) *corev1.LifecycleHandler {
	switch {
	case c.Lifecycle == nil:
		return nil
	case postStart:
		return c.Lifecycle.PostStart
	}
	return c.Lifecycle.PreStop
}

// hook runs one in a sandbox, for so long at most.
func (r *Reconciler) hook(ctx context.Context, sandbox string, c corev1.Container, h *corev1.LifecycleHandler, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if h.Sleep != nil {
		sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
		return ctx.Err()
	}
	probe := &corev1.Probe{TimeoutSeconds: int32(most/time.Second) + 1, ProbeHandler: corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet}}
	healthy, why, err := r.Caisson.Probe(ctx, sandbox, numbered(c, probe))
	if err == nil && !healthy {
		err = errors.New(why)
	}
	return err
}

// preStop runs the hook of a container before its command gets TERM, once, and returns what is left
// of the grace.
func (r *Reconciler) preStop(ctx context.Context, p *corev1.Pod, last run, left time.Duration) time.Duration {
	for _, c := range p.Spec.Containers {
		h := hookOf(c, false)
		if c.Name != last.container || h == nil || left <= 0 || !r.first(last.sandbox) {
			continue
		}
		begin := time.Now()
		if err := r.hook(ctx, last.sandbox, c, h, left); err != nil && ctx.Err() == nil {
			r.Events.Eventf(p, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err)
		}
		return max(left-time.Since(begin), leastGrace)
	}
	return left
}

// first says that the preStop hook of a sandbox was not begun yet.
func (r *Reconciler) first(sandbox string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.prestopped[sandbox]
	r.prestopped[sandbox] = true
	return !before
}
