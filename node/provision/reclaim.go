package provision

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/node/pod"
)

// reclaim does what a PersistentVolume's policy says once its claim is gone: Delete removes the
// volume, Retain keeps it even when its PersistentVolume is deleted.
func (p *Provisioner) reclaim(ctx context.Context, v *corev1.PersistentVolume) error {
	deleted := v.DeletionTimestamp != nil
	free := v.Status.Phase == corev1.VolumeReleased || deleted && v.Status.Phase != corev1.VolumeBound
	if !free || !p.made(v) {
		return nil
	}
	volumes := p.Client.CoreV1().PersistentVolumes()
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		_, err := p.Caisson.RemoveVolume(ctx, &caissonv1.RemoveVolumeRequest{Name: v.Spec.CSI.VolumeHandle})
		if err != nil && !errors.Is(err, sbxerr.VolumeNotFound) {
			p.Events.Event(v, corev1.EventTypeWarning, "VolumeFailedDelete", err.Error())
			return err
		}
		if !deleted {
			return unlessAbsent(volumes.Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID}}))
		}
	}
	if !deleted || !slices.Contains(v.Finalizers, finalizer) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(v.Finalizers), func(f string) bool { return f == finalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": v.ResourceVersion, "finalizers": rest}})
	if err != nil {
		return err
	}
	_, err = volumes.Patch(ctx, v.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return unlessAbsent(err)
}

// made says that this provisioner made the volume on this node.
func (p *Provisioner) made(v *corev1.PersistentVolume) bool {
	return v.Annotations[provisionedBy] == pod.Provisioner && v.Labels[labelNode] == p.Node &&
		v.Spec.CSI != nil && v.Spec.CSI.Driver == pod.Driver
}

func unlessAbsent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
