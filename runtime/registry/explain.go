package registry

import (
	"context"
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

// explain puts a failure to fetch r under the code that says who can act on it. Addresses
// lose their query, which may hold a signature.
func explain(ctx context.Context, r Reference, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ended(ctx, r)
	}
	if coded := (*sbxerr.Error)(nil); errors.As(err, &coded) {
		if error(coded) == err {
			return err
		}
		return sbxerr.Wrap(coded.Code, opPull, fmt.Errorf("pull %s: %w", r.full, coded)) // without the request, which says less
	}
	if sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	var status remoteerrors.ErrUnexpectedStatus
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization), errors.As(err, &status) && (status.StatusCode == http.StatusUnauthorized || status.StatusCode == http.StatusForbidden):
		return sbxerr.WithRemedy(sbxerr.RegistryAuth, opPull, fmt.Errorf("%s does not let you pull %s: it may not exist there, or need credentials", r.Host, r.full),
			fmt.Sprintf("log in (docker login %s), or check the name", r.Host))
	case errdefs.IsNotFound(err):
		return sbxerr.WithRemedy(sbxerr.ImageNotFound, opPull, fmt.Errorf("%s has no image %s", r.Host, r.full), "check the name, the tag and the digest")
	case errors.As(err, &certificate):
		return sbxerr.WithRemedy(sbxerr.Registry, opPull, fmt.Errorf("pull %s: %w", r.full, plain(err)),
			fmt.Sprintf("if the registry has a certificate of a private CA, give that as ca in %s/hosts.toml in registries.hosts_dir", r.Host))
	case errors.As(err, &status):
		return sbxerr.New(sbxerr.Registry, opPull, "pull %s: %s answers %s", r.full, hostOf(status.RequestURL, r.Host), sbxerr.Clip(status.Status))
	}
	return sbxerr.New(sbxerr.Registry, opPull, "pull %s: %w", r.full, plain(err))
}

func ended(ctx context.Context, r Reference) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return sbxerr.WithRemedy(sbxerr.Deadline, opPull, fmt.Errorf("pull %s: it takes longer than registries.timeout", r.full),
			"pull again: it goes on where it was; or raise registries.timeout in the daemon's configuration")
	}
	return sbxerr.New(sbxerr.Canceled, opPull, "pull %s: %w", r.full, context.Cause(ctx))
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
