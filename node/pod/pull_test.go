package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCredentials(t *testing.T) {
	const config = `{"auths":{"https://index.docker.io/v1/":{"username":"hub","password":"h"},
		"registry.example:5000":{"auth":"dTpwOnE="},"other.example":{"identitytoken":"token"}}}`
	p := &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "absent"}, {Name: "broken"}, {Name: "s"}}}}
	secrets := map[string]*corev1.Secret{
		"broken": {Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{")}},
		"s":      {Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}},
	}
	for image, want := range map[string]string{
		"docker.io/library/busybox": "hub h ", "registry.example:5000/a:b": "u p:q ", "other.example/a": "  token", "registry.example/a": "  ", "base": "  ",
	} {
		c := Credentials(p, image, secrets)
		if got := c.GetUsername() + " " + c.GetPassword() + " " + c.GetIdentityToken(); got != want {
			t.Errorf("%s: %q, not %q", image, got, want)
		}
	}
}
