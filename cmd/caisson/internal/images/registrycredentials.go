package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// helperTime is how long a credential helper may take.
const helperTime = 30 * time.Second

// registryCredentials returns the user's credentials for the registry of an image, nil for
// none. Credential helpers run here, as the user.
func registryCredentials(a *cli.App, ctx context.Context, image string) (*caissonv1.RegistryCredentials, error) {
	host, _, _ := strings.Cut(image, "/")
	if host == "docker.io" {
		host = "https://index.docker.io/v1/" // how docker login files it
	}
	dir, ok := a.LookupEnv("DOCKER_CONFIG")
	if !ok || dir == "" {
		home, _ := a.LookupEnv("HOME")
		if home == "" {
			return nil, nil
		}
		dir = filepath.Join(home, ".docker")
	}
	path := filepath.Join(dir, "config.json")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	config := configfile.New(path)
	if err == nil {
		err = config.LoadFromReader(f)
		f.Close() // it was only read
	}
	var auth types.AuthConfig
	if err == nil {
		auth, err = askHelper(ctx, func() (types.AuthConfig, error) { return config.GetAuthConfig(host) })
	}
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.ClientIO, "caisson.credentials", fmt.Errorf("credentials for %s of %s: %w", host, path, err),
			"correct the file or its credential helper, or name another directory in DOCKER_CONFIG")
	}
	if auth.Username == "" && auth.Password == "" && auth.IdentityToken == "" {
		return nil, nil
	}
	return &caissonv1.RegistryCredentials{Username: auth.Username, Password: auth.Password, IdentityToken: auth.IdentityToken}, nil
}

// askHelper gives up on a helper that does not answer, and leaves it running.
func askHelper(ctx context.Context, ask func() (types.AuthConfig, error)) (types.AuthConfig, error) {
	type answer struct {
		auth types.AuthConfig
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		auth, err := ask()
		answers <- answer{auth, err}
	}()
	select {
	case got := <-answers:
		return got.auth, got.err
	case <-ctx.Done():
		return types.AuthConfig{}, context.Cause(ctx)
	case <-time.After(helperTime):
		return types.AuthConfig{}, fmt.Errorf("the credential helper did not answer within %s", helperTime)
	}
}
