package provision

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
)

// Annotations of Kubernetes, and the finalizer that keeps a PersistentVolume until its volume is
// gone.
const (
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	finalizer     = pod.Provisioner
)

// asksFor are the annotations of a claim with the name of its provisioner: the control plane sets
// them when the scheduler has chosen a node.
var asksFor = []string{"volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"}

// wanted says that a claim waits for a volume of this node.
func (p *Provisioner) wanted(c *corev1.PersistentVolumeClaim) bool {
	asked := false
	for _, key := range asksFor {
		asked = asked || c.Annotations[key] == pod.Provisioner
	}
	return asked && c.Annotations[selectedNode] == p.Node && c.Spec.VolumeName == "" && c.DeletionTimestamp == nil
}

// provision makes the volume of a claim, then its PersistentVolume. Both may be there already: an
// earlier process ended between them.
func (p *Provisioner) provision(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if !p.wanted(c) {
		return nil
	}
	class, err := p.class(ctx, c)
	if err != nil {
		return p.tell(c, err)
	}
	if why := refuse(c, class); why != "" {
		p.Events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", why)
		return nil // neither changes
	}
	v := p.volume(c, class)
	size := v.Spec.Capacity[corev1.ResourceStorage]
	bytes := size.Value()
	if _, err := p.Caisson.CreateVolume(ctx, &caissonv1.CreateVolumeRequest{Name: v.Name, SizeBytes: &bytes}); err != nil {
		return p.tell(c, err)
	}
	_, err = p.Client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return p.tell(c, err)
	}
	p.Events.Eventf(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "The node %s has made the volume %s", p.Node, v.Name)
	return nil
}

// tell says at the claim why it has no volume yet, and returns err.
func (p *Provisioner) tell(c *corev1.PersistentVolumeClaim, err error) error {
	text := err.Error()
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Remedy != "" {
		text += "; " + e.Remedy
	}
	p.Events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", text)
	return err
}

func (p *Provisioner) class(ctx context.Context, c *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	if c.Spec.StorageClassName == nil {
		return nil, fmt.Errorf("the claim %q names no StorageClass", c.Name)
	}
	return p.Client.StorageV1().StorageClasses().Get(ctx, *c.Spec.StorageClassName, metav1.GetOptions{})
}

// refuse says why a volume for the claim can never be made.
func refuse(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	for _, mode := range c.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Sprintf("spec.accessModes: %s: a volume is of one node: only ReadWriteOnce and ReadWriteOncePod", mode)
		}
	}
	switch {
	case c.Spec.VolumeMode != nil && *c.Spec.VolumeMode != corev1.PersistentVolumeFilesystem:
		return "spec.volumeMode: there are no devices inside: only Filesystem"
	case c.Spec.Selector != nil:
		return "spec.selector: a volume is made for its claim"
	case c.Spec.DataSource != nil || c.Spec.DataSourceRef != nil:
		return "spec.dataSource: a volume begins empty"
	case class.Provisioner != pod.Provisioner:
		return fmt.Sprintf("the StorageClass %q is of %s, not of %s", class.Name, class.Provisioner, pod.Provisioner)
	case len(class.Parameters) > 0:
		return fmt.Sprintf("the StorageClass %q has parameters: %s knows none", class.Name, pod.Provisioner)
	case len(class.MountOptions) > 0:
		return fmt.Sprintf("the StorageClass %q has mountOptions: %s knows none", class.Name, pod.Provisioner)
	}
	return ""
}

// volume is what the control plane binds to a claim. Its name, which is also that of caisson's
// volume, is unique: it has the claim's UID.
func (p *Provisioner) volume(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	name := "pvc-" + string(c.UID)
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	files := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{labelNode: p.Node}, Finalizers: []string{finalizer},
			Annotations: map[string]string{provisionedBy: pod.Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(pod.VolumeSize(size.Value()), resource.BinarySI)},
			AccessModes: c.Spec.AccessModes, VolumeMode: &files, StorageClassName: class.Name, PersistentVolumeReclaimPolicy: policy,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: pod.Driver, VolumeHandle: name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{p.Node}}},
			}}}},
		},
	}
}
