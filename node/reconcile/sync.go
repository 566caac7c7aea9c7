package reconcile

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/caisson-run/caisson/node/pod"
)

// sync brings one pod a step further, and returns when to look again. One worker at a time has
// a pod.
func (r *Reconciler) sync(ctx context.Context, uid types.UID) (time.Duration, error) {
	rs, err := r.runsOf(ctx, uid)
	if err != nil {
		return 0, err
	}
	p := r.pod(uid)
	switch {
	case p == nil:
		return 0, r.forget(ctx, uid, rs)
	case p.DeletionTimestamp != nil:
		return r.end(ctx, p, rs)
	case terminal(p):
		return 0, r.finish(ctx, uid, rs)
	}
	return r.advance(ctx, p, rs)
}

// advance starts what a pod needs next, and tells its status.
func (r *Reconciler) advance(ctx context.Context, p *corev1.Pod, rs runs) (time.Duration, error) {
	known := r.withRemembered(p, rs)
	if len(known) == 0 {
		if reason, message := r.refuse(p); reason != "" {
			r.Events.Event(p, corev1.EventTypeWarning, reason, message)
			return 0, r.fail(ctx, p, known, reason, message)
		}
	}
	r.admit(p.UID)
	if left, over := deadline(p, time.Now()); over {
		return r.expire(ctx, p, rs)
	} else if again, err := r.step(ctx, p, known); err != nil || left == 0 || again > 0 && again < left {
		return again, err
	} else {
		return left, nil
	}
}

func (r *Reconciler) step(ctx context.Context, p *corev1.Pod, known runs) (time.Duration, error) {
	now := time.Now()
	s := next(p, known, now)
	again := s.wait
	if s.start != nil {
		again = r.start(ctx, p, s.start)
		rs, err := r.runsOf(ctx, p.UID)
		if err != nil {
			return 0, err
		}
		known = r.withRemembered(p, rs)
		s = next(p, known, now)
	}
	if err := r.removeOld(ctx, known); err != nil {
		return 0, err
	}
	if err := r.guard(ctx, p, known); err != nil { // before the pod is told to run
		return 0, err
	}
	r.follow(ctx, p, known)
	if n := r.noteOf(p.UID); n.ends(p, len(known) > 0) {
		return 0, r.fail(ctx, p, known, n.reason, n.message)
	}
	if s.start != nil && again == 0 { // an init container is over, and the next one waits
		again = time.Millisecond
	}
	return again, r.tell(ctx, p, r.status(p, known, s.phase))
}

// refuse says why a pod can never run here.
func (r *Reconciler) refuse(p *corev1.Pod) (reason, message string) {
	if refusals := pod.Check(p, r.Offer); len(refusals) > 0 {
		return "CaissonRefused", pod.Text(refusals)
	}
	return r.misfit(p)
}

// misfit compares a pod with what is left of the node: one with spec.nodeName has met no scheduler.
func (r *Reconciler) misfit(p *corev1.Pod) (reason, message string) {
	all := requests(p, r.Memory)
	count := int64(1)
	for _, other := range r.Pods() {
		if other.UID == p.UID || terminal(other) || !r.isAdmitted(other) {
			continue
		}
		all, count = all.plus(requests(other, r.Memory)), count+1
	}
	have := r.Allocatable()
	switch {
	case all.milliCPU > have.Cpu().MilliValue():
		return "OutOfcpu", "the node has no CPUs left for the pod's requests"
	case all.memory > have.Memory().Value():
		return "OutOfmemory", "the node has no memory left for the pod's requests"
	case all.storage > have.StorageEphemeral().Value():
		return "OutOfephemeral-storage", "the node has no disk left for the pod's requests"
	case count > have.Pods().Value():
		return "OutOfpods", "the node has no room for another pod"
	}
	return "", ""
}

func (r *Reconciler) admit(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admitted[uid] = true
}

// isAdmitted holds for pods of an earlier process of this program, too: they have a start time.
func (r *Reconciler) isAdmitted(p *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admitted[p.UID] || p.Status.StartTime != nil
}

func deadline(p *corev1.Pod, now time.Time) (left time.Duration, over bool) {
	if p.Spec.ActiveDeadlineSeconds == nil || p.Status.StartTime == nil {
		return 0, false
	}
	left = p.Status.StartTime.Add(time.Duration(*p.Spec.ActiveDeadlineSeconds) * time.Second).Sub(now)
	return max(left, 0), left <= 0
}

// expire ends a pod whose time is over.
func (r *Reconciler) expire(ctx context.Context, p *corev1.Pod, rs runs) (time.Duration, error) {
	if live := rs.live(); len(live) > 0 {
		r.stop(ctx, p, live, grace(p))
		return 0, r.guard(ctx, p, rs)
	}
	return 0, r.fail(ctx, p, r.withRemembered(p, rs), "DeadlineExceeded", "the pod ran longer than activeDeadlineSeconds")
}

func grace(p *corev1.Pod) time.Duration {
	if p.Spec.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
}
