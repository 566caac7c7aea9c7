package register

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// renew says that this program runs. Whether the daemon does is the condition Ready.
func (r *Registration) renew(ctx context.Context) {
	for ctx.Err() == nil {
		wait := leaseEvery
		if err := r.renewOnce(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("node lease", "error", err)
			wait = time.Second
		}
		sleep(ctx, wait)
	}
}

func (r *Registration) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseEvery)
	defer cancel()
	all := r.Client.CoordinationV1().Leases(leases)
	now, seconds := metav1.NowMicro(), int32(leaseFor)
	l, err := all.Get(ctx, r.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.Node, Namespace: leases}}
		l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &r.Node, LeaseDurationSeconds: &seconds, RenewTime: &now}
		if node, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{}); err == nil {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		}
		_, err = all.Create(ctx, l, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &r.Node, &seconds, &now
	_, err = all.Update(ctx, l, metav1.UpdateOptions{})
	return err
}
