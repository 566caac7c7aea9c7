package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/node/pod"
)

// fillClaims finds the volumes behind a pod's claims.
func (r *Reconciler) fillClaims(ctx context.Context, p *corev1.Pod, f *pod.Facts) error {
	f.Claims = map[string]string{}
	for _, name := range pod.Claims(p) {
		volume, err := r.claimed(ctx, p.Namespace, name)
		if err != nil {
			return err
		}
		f.Claims[name] = volume
	}
	return nil
}

// claimed returns the name of a claim's volume, which is there: a mount would make an empty one.
func (r *Reconciler) claimed(ctx context.Context, namespace, name string) (string, error) {
	claim, err := r.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		claim, err = nil, nil
	}
	if err != nil {
		return "", err
	}
	bound, err := pod.Bound(name, claim)
	if err != nil {
		return "", err
	}
	v, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, bound, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	handle, err := pod.Handle(claim, v)
	if err != nil {
		return "", err
	}
	_, err = r.Caisson.InspectVolume(ctx, &caissonv1.InspectVolumeRequest{Name: handle})
	if errors.Is(err, sbxerr.VolumeNotFound) {
		return "", &pod.ClaimError{Claim: name, Why: fmt.Sprintf("is bound to %q, of which the node %s does not have the volume %q", bound, r.Node, handle)}
	}
	return handle, err
}
