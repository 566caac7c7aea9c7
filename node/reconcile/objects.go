package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/caisson-run/caisson/node/pod"
)

// objects gets ConfigMaps and Secrets by name, each once: the node may read nothing else. Nil is
// one that is absent.
type objects struct {
	client     kubernetes.Interface
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

// fill gets what a pod refers to.
func (o *objects) fill(ctx context.Context, p *corev1.Pod, f *pod.Facts) error {
	f.ConfigMaps, f.Secrets = map[string]*corev1.ConfigMap{}, map[string]*corev1.Secret{}
	configMaps, secrets := pod.References(p)
	for _, name := range configMaps {
		m, err := once(ctx, &o.configMaps, p.Namespace, name, o.client.CoreV1().ConfigMaps(p.Namespace).Get)
		if err != nil {
			return err
		}
		f.ConfigMaps[name] = m
	}
	for _, name := range secrets {
		s, err := once(ctx, &o.secrets, p.Namespace, name, o.client.CoreV1().Secrets(p.Namespace).Get)
		if err != nil {
			return err
		}
		f.Secrets[name] = s
	}
	return nil
}

func once[T any](ctx context.Context, known *map[string]*T, namespace, name string, get func(context.Context, string, metav1.GetOptions) (*T, error)) (*T, error) {
	key := namespace + "/" + name
	if o, ok := (*known)[key]; ok {
		return o, nil
	}
	o, err := get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		o, err = nil, nil
	}
	if *known == nil {
		*known = map[string]*T{}
	}
	if err == nil {
		(*known)[key] = o
	}
	return o, err
}
