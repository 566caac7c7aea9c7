package reconcile

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
)

// uidLength is how many characters of a sandbox's name are the pod's UID.
const uidLength = 36

// pause is between two tries to reach a daemon that is away.
const pause = time.Second

// watch looks at a pod when something of it ended.
func (r *Reconciler) watch(ctx context.Context) {
	for ctx.Err() == nil {
		req := &caissonv1.WatchRequest{Follow: true, Since: "1s", Filter: []string{
			"type=run.caisson.sandbox.ended", "type=run.caisson.sandbox.removed"}}
		err := r.Caisson.Watch(ctx, req, func(e *caissonv1.Event) error {
			if e.Type == api.EventsLost {
				return r.compare(ctx)
			}
			if name := e.GetData().GetName(); len(name) > uidLength {
				go r.ended(ctx, types.UID(name[:uidLength]), e.Data.SandboxId)
			}
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		r.Log.Warn("the daemon's events ended", "error", err)
		sleep(ctx, pause)
		if err := r.compare(ctx); err != nil {
			r.Log.Warn("compare", "error", err)
		}
	}
}

// ended queues the pod of a sandbox once that is over: its event comes a moment before.
func (r *Reconciler) ended(ctx context.Context, uid types.UID, sandbox string) {
	if _, err := r.Caisson.Wait(ctx, sandbox); err != nil && !gone(err) && ctx.Err() == nil {
		r.Log.Warn("wait", "sandbox", sandbox, "error", err)
	}
	r.queue.Add(uid)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// resync repairs what no event told.
func (r *Reconciler) resync(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.compare(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("compare", "error", err)
		}
		sleep(ctx, r.Resync)
	}
}

// compare queues pods and sandboxes that do not belong together.
func (r *Reconciler) compare(ctx context.Context) error {
	boxes, err := r.mine(ctx)
	if err != nil {
		return err
	}
	live, known := map[types.UID]bool{}, map[types.UID]bool{}
	for _, s := range boxes {
		uid := types.UID(s.Labels[pod.LabelUID])
		known[uid] = true
		live[uid] = live[uid] || !Ended(s)
	}
	for _, p := range r.Pods() {
		delete(known, p.UID)
		if p.DeletionTimestamp != nil || terminal(p) == live[p.UID] || p.Status.Phase == corev1.PodPending {
			r.queue.Add(p.UID)
		}
	}
	for uid := range known {
		r.queue.Add(uid)
	}
	return errors.Join(r.trim(ctx, boxes), r.compareVolumes(ctx))
}

// keptLogs is how many pods that are over keep their logs, for each pod that the node may run.
// The daemon keeps four times as many ended sandboxes as there may be live ones.
const keptLogs = 3

// trim gives up the oldest logs of pods that are over, so that others can run. Jobs may leave
// thousands of such pods.
func (r *Reconciler) trim(ctx context.Context, boxes []*caissonv1.Sandbox) error {
	over := slices.DeleteFunc(slices.Clone(boxes), func(s *caissonv1.Sandbox) bool {
		p := r.pod(types.UID(s.Labels[pod.LabelUID]))
		return !Ended(s) || p == nil || !terminal(p)
	})
	have := r.Allocatable()
	surplus := int64(len(over)) - keptLogs*have.Pods().Value()
	if surplus <= 0 {
		return nil
	}
	slices.SortFunc(over, func(a, b *caissonv1.Sandbox) int { return a.ExitedAt.AsTime().Compare(b.ExitedAt.AsTime()) })
	for _, s := range over[:surplus] {
		if err := r.remove(ctx, runOf(s)); err != nil {
			return err
		}
	}
	return nil
}

var podVolume = regexp.MustCompile(`^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\.`)

// compareVolumes removes volumes of pods that are gone, of which no sandbox is left to name them.
func (r *Reconciler) compareVolumes(ctx context.Context) error {
	l, err := r.Caisson.ListVolumes(ctx, &caissonv1.ListVolumesRequest{})
	if err != nil {
		return err
	}
	for _, v := range l.Volumes {
		m := podVolume.FindStringSubmatch(v.Name)
		if m == nil || v.Owner != 0 || len(v.UsedBy) > 0 || r.pod(types.UID(m[1])) != nil {
			continue
		}
		if known, err := r.exists(ctx, types.UID(m[1])); err != nil || known {
			return err
		}
		if err := r.removeVolume(ctx, v.Name); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) mine(ctx context.Context) ([]*caissonv1.Sandbox, error) {
	l, err := r.Caisson.List(ctx, &caissonv1.ListRequest{Labels: map[string]string{pod.LabelNode: r.Node}})
	return l.GetSandboxes(), err
}

// adopt takes over addresses of sandboxes before any pod gets one, and answers at them.
func (r *Reconciler) adopt(ctx context.Context) error {
	for {
		boxes, err := r.mine(ctx)
		if err == nil {
			err := r.restore(boxes)
			if err == nil {
				r.answerAgain(boxes)
			}
			return err
		}
		r.Log.Warn("the daemon does not answer", "error", err)
		if sleep(ctx, pause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// restore gives those that run their addresses again, and then those that ended, unless another
// pod has it by now.
func (r *Reconciler) restore(boxes []*caissonv1.Sandbox) error {
	for _, over := range []bool{false, true} {
		for _, s := range boxes {
			ip := s.Labels[pod.LabelIP]
			if ip == "" || r.Addresses == nil || Ended(s) != over {
				continue
			}
			if err := r.Addresses.Restore(types.UID(s.Labels[pod.LabelUID]), ip); err != nil && !over {
				return fmt.Errorf("the address of %s: %w", s.Name, err)
			}
		}
	}
	return nil
}
