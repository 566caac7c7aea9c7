package reconcile

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/agentsandbox"
	"github.com/caisson-run/caisson/node/pod"
	"github.com/caisson-run/caisson/node/policy"
)

// answer answers for the sandboxes of a pod that run and have a runtime of agent-sandbox, and for no
// others of the pod. What the pod asks for now does not count: its sandbox has a label.
func (r *Reconciler) answer(uid types.UID, rs runs, in policy.Ingress) error {
	var boxes []agentsandbox.Sandbox
	for _, run := range rs.live() {
		if run.runtime == "" {
			continue
		}
		boxes = append(boxes, agentsandbox.Sandbox{
			ID: run.sandbox, Runtime: run.runtime, Address: run.ip, Dir: run.dir, Started: run.started,
			Admits: func(port uint16, client netip.Addr) bool { return in.Access(port).Admits(client) },
			Env:    func(ctx context.Context) (map[string]string, error) { return r.told(ctx, uid) },
		})
	}
	err := r.Runtimes.Follow(string(uid), boxes)
	if p := r.pod(uid); err != nil && p != nil {
		r.Events.Event(p, corev1.EventTypeWarning, "CaissonRuntime", err.Error())
	}
	return err
}

// told is the environment of a pod that its runtime may tell.
func (r *Reconciler) told(ctx context.Context, uid types.UID) (map[string]string, error) {
	p := r.pod(uid)
	if p == nil {
		return nil, fmt.Errorf("the pod %s is not known yet", uid)
	}
	f, err := r.facts(ctx, p)
	if err != nil {
		return nil, err
	}
	return pod.Told(p, f)
}

// answerAgain answers for sandboxes of an earlier process of this program, whether the API server is
// there or not. Before its NetworkPolicies are known nobody may connect.
func (r *Reconciler) answerAgain(boxes []*caissonv1.Sandbox) {
	of := map[types.UID]runs{}
	for _, s := range boxes {
		uid := types.UID(s.Labels[pod.LabelUID])
		of[uid] = append(of[uid], runOf(s))
	}
	in := policy.Ingress{}
	if r.policies == nil {
		in = policy.All()
	}
	for uid, rs := range of {
		if err := r.answer(uid, rs, in); err != nil { // it is tried again with the pod
			r.Log.Warn("runtime", "uid", uid, "error", err)
		}
	}
}
