package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Missing is a ConfigMap, Secret or key that a pod needs and the cluster does not have.
type Missing struct{ What string }

// Error implements error.
func (m *Missing) Error() string { return m.What + " is absent" }

// References names the ConfigMaps and Secrets of a pod.
func References(p *corev1.Pod) (configMaps, secrets []string) {
	for _, c := range Containers(p) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				configMaps = append(configMaps, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				secrets = append(secrets, from.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if from := e.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
				configMaps = append(configMaps, from.ConfigMapKeyRef.Name)
			} else if from != nil && from.SecretKeyRef != nil {
				secrets = append(secrets, from.SecretKeyRef.Name)
			}
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap != nil {
			configMaps = append(configMaps, v.ConfigMap.Name)
		}
		if v.Secret != nil {
			secrets = append(secrets, v.Secret.SecretName)
		}
	}
	projected(p, func(s corev1.VolumeProjection) {
		if s.ConfigMap != nil {
			configMaps = append(configMaps, s.ConfigMap.Name)
		}
		if s.Secret != nil {
			secrets = append(secrets, s.Secret.Name)
		}
	})
	for _, ref := range p.Spec.ImagePullSecrets {
		secrets = append(secrets, ref.Name)
	}
	return configMaps, secrets
}

func environment(p *corev1.Pod, c corev1.Container, f Facts) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		values, err := allOf(from, f)
		if err != nil {
			return nil, err
		}
		for k, v := range values {
			env[from.Prefix+k] = v
		}
	}
	for _, e := range c.Env {
		v, ok, err := valueOf(p, e, env, f)
		if err != nil {
			return nil, err
		}
		if ok {
			env[e.Name] = v
		}
	}
	return env, nil
}

func allOf(from corev1.EnvFromSource, f Facts) (map[string]string, error) {
	if ref := from.ConfigMapRef; ref != nil {
		if m := f.ConfigMaps[ref.Name]; m != nil {
			return m.Data, nil
		}
		return nil, missing(ref.Optional, "ConfigMap %q", ref.Name)
	}
	ref := from.SecretRef
	m := f.Secrets[ref.Name]
	if m == nil {
		return nil, missing(ref.Optional, "Secret %q", ref.Name)
	}
	values := map[string]string{}
	for k, v := range m.Data {
		values[k] = string(v)
	}
	return values, nil
}

func missing(optional *bool, format string, args ...any) error {
	if optional != nil && *optional {
		return nil
	}
	return &Missing{What: fmt.Sprintf(format, args...)}
}

func valueOf(p *corev1.Pod, e corev1.EnvVar, env map[string]string, f Facts) (value string, ok bool, err error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return expand(e.Value, env), true, nil
	case from.FieldRef != nil:
		v, ok := fieldOf(p, f, from.FieldRef.FieldPath)
		return v, ok, nil
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		if m := f.ConfigMaps[ref.Name]; m != nil {
			if v, ok := m.Data[ref.Key]; ok {
				return v, true, nil
			}
		}
		return "", false, missing(ref.Optional, "ConfigMap %q or its key %q", ref.Name, ref.Key)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		if m := f.Secrets[ref.Name]; m != nil {
			if v, ok := m.Data[ref.Key]; ok {
				return string(v), true, nil
			}
		}
		return "", false, missing(ref.Optional, "Secret %q or its key %q", ref.Name, ref.Key)
	}
	return "", false, fmt.Errorf("env %s: its source is not known", e.Name)
}

// fieldOf is the value of a field that a pod may refer to.
func fieldOf(p *corev1.Pod, f Facts, path string) (string, bool) {
	for prefix, values := range map[string]map[string]string{
		"metadata.labels['":      p.Labels,
		"metadata.annotations['": p.Annotations,
	} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			return values[strings.TrimSuffix(key, "']")], true
		}
	}
	v, ok := map[string]string{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "metadata.uid": string(p.UID),
		"spec.nodeName": f.Node, "spec.serviceAccountName": p.Spec.ServiceAccountName,
		"status.hostIP": f.HostIP, "status.hostIPs": f.HostIP, "status.podIP": f.PodIP, "status.podIPs": f.PodIP,
	}[path]
	return v, ok
}

func expandAll(args []string, env map[string]string) []string {
	expanded := make([]string, len(args))
	for i, a := range args {
		expanded[i] = expand(a, env)
	}
	return expanded
}

// expand replaces $(NAME) by the variable. $$ is a dollar, and unknown names stay.
func expand(s string, env map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		s = after
		if rest, ok := strings.CutPrefix(s, "$"); ok {
			b.WriteByte('$')
			s = rest
			continue
		}
		b.WriteByte('$')
		if name, rest, ok := reference(s); ok {
			if v, known := env[name]; known {
				value := b.String()
				b.Reset()
				b.WriteString(value[:len(value)-1] + v)
				s = rest
			}
		}
	}
}

func reference(s string) (name, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, "(")
	if !ok {
		return "", "", false
	}
	return strings.Cut(s, ")")
}
