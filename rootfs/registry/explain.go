package registry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const opPull = "registry.pull"

// explain puts a failure to fetch the image under the code that says who can act on it. Addresses
// lose their query, which may hold a signature.
func (s *session) explain(err error) error {
	if err == nil {
		return nil
	}
	if coded := (*sbxerr.Error)(nil); errors.As(err, &coded) {
		if error(coded) == err {
			return err
		}
		return sbxerr.Wrap(coded.Code, opPull, fmt.Errorf("pull %s: %w", s.Reference, coded)) // without the request, which says less
	}
	if sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	var status remoteerrors.ErrUnexpectedStatus
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization), errors.As(err, &status) && (status.StatusCode == http.StatusUnauthorized || status.StatusCode == http.StatusForbidden):
		return sbxerr.WithRemedy(sbxerr.RegistryAuth, opPull, fmt.Errorf("%s does not let you pull %s: it may not exist there, or need credentials", s.Host, s.Reference),
			fmt.Sprintf("log in (docker login %s), or check the name", s.Host))
	case errdefs.IsNotFound(err):
		return sbxerr.WithRemedy(sbxerr.ImageNotFound, opPull, fmt.Errorf("%s has no image %s", s.Host, s.Reference), "check the name, the tag and the digest")
	case errors.As(err, &certificate):
		return sbxerr.WithRemedy(sbxerr.Registry, opPull, fmt.Errorf("pull %s: %w", s.Reference, plain(err)),
			fmt.Sprintf("if the registry has a certificate of a private CA, give that as ca in %s/hosts.toml in registries.hosts_dir", s.Host))
	case errors.As(err, &status):
		return sbxerr.New(sbxerr.Registry, opPull, "pull %s: %s answers %s", s.Reference, hostOf(status.RequestURL, s.Host), sbxerr.Clip(status.Status))
	}
	return sbxerr.New(sbxerr.Registry, opPull, "pull %s: %w", s.Reference, plain(err))
}

// plain replaces the error of a request by one that names the host alone.
func plain(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: %w", hostOf(failed.URL, "the registry"), failed.Err)
	}
	return err
}

func hostOf(address, otherwise string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return otherwise
}
