package pod

import (
	"errors"
	"path"

	corev1 "k8s.io/api/core/v1"
)

// Token is a token of a pod's service account. Two volumes that ask for the same one share it.
type Token struct {
	Audience string // empty: the API server
	Seconds  int64  // that it is to live
}

// tokenMode is that of tokens in pods whose user or group is known, as the kubelet's.
const tokenMode int32 = 0o600

// projected calls f for the sources of a pod's projected volumes.
func projected(p *corev1.Pod, f func(corev1.VolumeProjection)) {
	for _, v := range p.Spec.Volumes {
		if v.Projected == nil || apiAccess(v) {
			continue
		}
		for _, s := range v.Projected.Sources {
			f(s)
		}
	}
}

// Tokens are those that a pod has in its projected volumes.
func Tokens(p *corev1.Pod) (tokens []Token) {
	projected(p, func(s corev1.VolumeProjection) {
		if s.ServiceAccountToken != nil {
			tokens = append(tokens, tokenOf(s.ServiceAccountToken))
		}
	})
	return tokens
}

func tokenOf(s *corev1.ServiceAccountTokenProjection) Token {
	t := Token{Audience: s.Audience, Seconds: 3600} // the default of the API server
	if s.ExpirationSeconds != nil {
		t.Seconds = *s.ExpirationSeconds
	}
	return t
}

func ofProjected(p *corev1.Pod, v *corev1.ProjectedVolumeSource, f Facts) ([]File, error) {
	var files []File
	var errs []error
	for _, s := range v.Sources {
		var some []File
		var err error
		switch {
		case s.ConfigMap != nil:
			some, err = ofConfigMap(&corev1.ConfigMapVolumeSource{
				LocalObjectReference: s.ConfigMap.LocalObjectReference, Items: s.ConfigMap.Items, Optional: s.ConfigMap.Optional, DefaultMode: v.DefaultMode}, f)
		case s.Secret != nil:
			some, err = ofSecret(&corev1.SecretVolumeSource{
				SecretName: s.Secret.Name, Items: s.Secret.Items, Optional: s.Secret.Optional, DefaultMode: v.DefaultMode}, f)
		case s.ServiceAccountToken != nil:
			some = []File{ofToken(p, s.ServiceAccountToken, v.DefaultMode, f)}
		}
		files, errs = append(files, some...), append(errs, err)
	}
	return files, errors.Join(errs...)
}

func ofToken(p *corev1.Pod, s *corev1.ServiceAccountTokenProjection, mode *int32, f Facts) File {
	file := File{Path: path.Clean("/" + s.Path)[1:], Mode: defaultMode, Data: []byte(f.Tokens[tokenOf(s)])}
	if mode != nil {
		file.Mode = *mode
	}
	uid, _ := ids(p, p.Spec.Containers[0])
	if c := p.Spec.SecurityContext; uid != nil || c != nil && c.FSGroup != nil {
		file.Mode = tokenMode
	}
	return file
}
