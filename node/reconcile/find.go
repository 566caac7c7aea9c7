package reconcile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
)

// Find returns the sandbox of a container, or of its run before. An empty container is the pod's
// last one.
func (r *Reconciler) Find(ctx context.Context, namespace, name, container string, previous bool) (sandbox string, err error) {
	o, known, err := r.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil {
		return "", err
	}
	if !known {
		return "", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	p := o.(*corev1.Pod)
	if container == "" {
		container = p.Spec.Containers[0].Name
	}
	rs, err := r.runsOf(ctx, p.UID)
	if err != nil {
		return "", err
	}
	if last := lastOf(rs, container, previous); last != nil {
		return last.sandbox, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %q of pod %q has not run", container, name))
}

// Live returns the running sandboxes of the node's pods.
func (r *Reconciler) Live(ctx context.Context) ([]*caissonv1.Sandbox, error) {
	l, err := r.Caisson.List(ctx, &caissonv1.ListRequest{Labels: map[string]string{pod.LabelNode: r.Node}, States: []string{"running"}})
	return l.GetSandboxes(), err
}
