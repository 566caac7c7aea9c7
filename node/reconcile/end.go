package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/node/pod"
	"github.com/caisson-run/caisson/node/policy"
)

// end ends a pod that is deleted: its command has until the deletion's time, and then the API
// server is told that the pod is gone. The deletion of the object brings forget.
func (r *Reconciler) end(ctx context.Context, p *corev1.Pod, rs runs) (time.Duration, error) {
	if live := rs.live(); len(live) > 0 {
		left := max(time.Until(p.DeletionTimestamp.Time), 0)
		r.stop(ctx, p, live, left)
		return left + time.Second, r.guard(ctx, p, rs)
	}
	if !terminal(p) {
		if err := r.tell(ctx, p, r.lastStatus(p, rs)); err != nil {
			return 0, err
		}
	}
	err := r.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	return 0, err
}

// lastStatus is that of a deleted pod of which nothing runs.
func (r *Reconciler) lastStatus(p *corev1.Pod, rs runs) corev1.PodStatus {
	known := r.withRemembered(p, rs)
	phase := corev1.PodFailed
	if last, _ := known.of(p.Spec.Containers[0].Name); last != nil && last.exit == 0 {
		phase = corev1.PodSucceeded
	}
	return r.status(p, known, phase)
}

// stop stops sandboxes in the background: their hooks, then TERM. A later call with less time counts.
func (r *Reconciler) stop(ctx context.Context, p *corev1.Pod, live runs, left time.Duration) {
	until := time.Now().Add(left)
	for _, run := range live {
		r.mu.Lock()
		before, busy := r.stopping[run.sandbox]
		skip := busy && !until.Before(before.Add(-time.Second/2))
		if !skip {
			r.stopping[run.sandbox] = until
		}
		r.mu.Unlock()
		if skip {
			continue
		}
		if p.DeletionTimestamp != nil {
			r.Events.Eventf(p, corev1.EventTypeNormal, "Killing", "Stopping container %s", run.container)
		}
		go func() {
			left := r.preStop(ctx, p, run, left)
			_, err := r.Caisson.Stop(ctx, run.sandbox, &left)
			if err != nil && !gone(err) && ctx.Err() == nil {
				r.Log.Warn("stop", "sandbox", run.sandbox, "error", err)
			}
			r.mu.Lock()
			if r.stopping[run.sandbox] == until {
				delete(r.stopping, run.sandbox)
			}
			r.mu.Unlock()
			r.queue.Add(p.UID)
		}()
	}
}

func gone(err error) bool { return errors.Is(err, sbxerr.NotFound) || errors.Is(err, sbxerr.State) }

// kill ends what still runs of a pod that is over.
func (r *Reconciler) kill(ctx context.Context, rs runs) error {
	now := time.Duration(0)
	for _, run := range rs.live() {
		if _, err := r.Caisson.Stop(ctx, run.sandbox, &now); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// finish keeps of a pod that is over its logs alone: its address is another pod's now.
func (r *Reconciler) finish(ctx context.Context, uid types.UID, rs runs) error {
	if err := r.kill(ctx, rs); err != nil {
		return err
	}
	return r.release(uid)
}

// release gives a pod's address back, at which nothing answers any more.
func (r *Reconciler) release(uid types.UID) error {
	if err := r.answer(uid, nil, policy.Ingress{}); err != nil || r.Addresses == nil {
		return err
	}
	return r.Addresses.Release(uid)
}

// forget removes all of a pod that the API server has no more, once it has been asked: what the
// informer does not show may only be late.
func (r *Reconciler) forget(ctx context.Context, uid types.UID, rs runs) error {
	known, err := r.exists(ctx, uid)
	if err != nil {
		return fmt.Errorf("ask for a pod: %w", err)
	}
	if known {
		return fmt.Errorf("the pod %s is not in the cache yet", uid)
	}
	var volumes []string
	for _, run := range rs {
		volumes = append(volumes, run.volumes...)
		if err := r.remove(ctx, run); err != nil {
			return err
		}
	}
	slices.Sort(volumes)
	for _, v := range slices.Compact(volumes) {
		if !strings.HasPrefix(v, pod.VolumesPrefix(string(uid))) {
			continue
		}
		if err := r.removeVolume(ctx, v); err != nil {
			return err
		}
	}
	if err := r.removeFiles(uid); err != nil {
		return err
	}
	if err := r.release(uid); err != nil {
		return err
	}
	r.clear(uid)
	r.endPulls(uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.admitted, uid)
	delete(r.deleted, uid)
	delete(r.problems, uid)
	delete(r.lastTold, uid)
	maps.DeleteFunc(r.tokens, func(k tokenKey, _ token) bool { return k.uid == uid })
	return nil
}

func (r *Reconciler) removeFiles(uid types.UID) error {
	root, err := os.OpenRoot(r.Files)
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(string(uid)), root.Close())
}

// exists asks the API server itself, unless it has told of the end. A node may list its own pods,
// and get none that is gone.
func (r *Reconciler) exists(ctx context.Context, uid types.UID) (bool, error) {
	r.mu.Lock()
	deleted := r.deleted[uid]
	r.mu.Unlock()
	if deleted {
		return false, nil
	}
	l, err := r.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", r.Node).String(),
	})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(l.Items, func(p corev1.Pod) bool { return p.UID == uid }), nil
}

func (r *Reconciler) remove(ctx context.Context, run run) error {
	r.unfollow(run.sandbox)
	r.mu.Lock()
	delete(r.prestopped, run.sandbox)
	r.mu.Unlock()
	_, err := r.Caisson.Remove(ctx, &caissonv1.RemoveRequest{Ref: run.sandbox, Force: true})
	if errors.Is(err, sbxerr.NotFound) {
		return nil
	}
	return err
}

func (r *Reconciler) removeVolume(ctx context.Context, name string) error {
	_, err := r.Caisson.RemoveVolume(ctx, &caissonv1.RemoveVolumeRequest{Name: name})
	if errors.Is(err, sbxerr.VolumeNotFound) {
		return nil
	}
	return err
}

// removeOld keeps the last two runs of each container: the second is for logs --previous.
func (r *Reconciler) removeOld(ctx context.Context, rs runs) error {
	seen := map[string]int{}
	for _, run := range slices.Backward(rs) {
		seen[run.container]++
		if seen[run.container] <= 2 || run.sandbox == "" {
			continue
		}
		if err := r.remove(ctx, run); err != nil {
			return err
		}
	}
	return nil
}
