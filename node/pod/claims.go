package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Names of caisson's volumes in Kubernetes.
const (
	Provisioner = "caisson.run/volume" // of StorageClasses
	Driver      = "volume.caisson.run" // of PersistentVolumes: their volumeHandle names a volume of caisson
)

// ClaimError is why a claim gives a pod no volume. Final is an error that stays.
type ClaimError struct {
	Claim, Why string
	Final      bool
}

// Error implements error.
func (e *ClaimError) Error() string { return fmt.Sprintf("the claim %q %s", e.Claim, e.Why) }

// Claims names the claims of a pod.
func Claims(p *corev1.Pod) (names []string) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// Bound returns the name of the PersistentVolume of a claim. Nil is one that is absent.
func Bound(name string, claim *corev1.PersistentVolumeClaim) (string, error) {
	switch {
	case claim == nil:
		return "", &ClaimError{Claim: name, Why: "is absent"}
	case claim.Status.Phase == corev1.ClaimLost:
		return "", &ClaimError{Claim: name, Why: "has lost its PersistentVolume"}
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return "", &ClaimError{Claim: name, Why: "is not bound to a PersistentVolume: leave spec.nodeName of the pod out, and give the claim a StorageClass of " + Provisioner}
	}
	return claim.Spec.VolumeName, nil
}

// Handle returns the name of caisson's volume behind a bound claim.
func Handle(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (string, error) {
	switch ref := v.Spec.ClaimRef; {
	case ref == nil || ref.UID != claim.UID:
		return "", &ClaimError{Claim: claim.Name, Why: fmt.Sprintf("is not that of the PersistentVolume %q", v.Name)}
	case v.Spec.CSI == nil || v.Spec.CSI.Driver != Driver:
		return "", &ClaimError{Claim: claim.Name, Why: fmt.Sprintf("is bound to %q, which is no volume of the driver %s", v.Name, Driver), Final: true}
	}
	return v.Spec.CSI.VolumeHandle, nil
}
