package pod

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// login is one entry of a Docker configuration.
type login struct {
	Username, Password, Auth string
	IdentityToken            string
}

// Credentials are those of a pod's imagePullSecrets for the registry of an image; nil: there are
// none. A Secret that is absent or of another form counts as none, as for the kubelet.
func Credentials(p *corev1.Pod, image string, secrets map[string]*corev1.Secret) *caissonv1.RegistryCredentials {
	for _, ref := range p.Spec.ImagePullSecrets {
		s := secrets[ref.Name]
		if s == nil {
			continue
		}
		var config struct{ Auths map[string]login }
		if text, ok := s.Data[corev1.DockerConfigJsonKey]; ok {
			_ = json.Unmarshal(text, &config) // no entry of it counts then
		} else {
			_ = json.Unmarshal(s.Data[corev1.DockerConfigKey], &config.Auths)
		}
		for server, l := range config.Auths {
			if serves(server, image) {
				return l.credentials()
			}
		}
	}
	return nil
}

// serves compares a server of a Docker configuration, which may be a URL or have a path, with the
// beginning of an image's name.
func serves(server, image string) bool {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	server = strings.TrimSuffix(server, "/")
	if server == "index.docker.io/v1" {
		server = "docker.io"
	}
	return server != "" && strings.HasPrefix(image, server+"/")
}

func (l login) credentials() *caissonv1.RegistryCredentials {
	if both, err := base64.StdEncoding.DecodeString(l.Auth); err == nil && l.Username == "" {
		l.Username, l.Password, _ = strings.Cut(string(both), ":")
	}
	if l.IdentityToken != "" {
		return &caissonv1.RegistryCredentials{IdentityToken: l.IdentityToken}
	}
	return &caissonv1.RegistryCredentials{Username: l.Username, Password: l.Password}
}
