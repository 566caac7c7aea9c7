package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/docker/cli/cli/config/configfile"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// hubKey is how Docker's files name Docker Hub.
const hubKey = "https://index.docker.io/v1/"

// Credentials are a user's for one registry. They are never printed.
type Credentials struct {
	Username      string
	Password      string
	IdentityToken string // instead of both
}

// String keeps credentials out of messages and logs.
func (Credentials) String() string { return "(credentials)" }

// GoString is String.
func (c Credentials) GoString() string { return c.String() }

// pair returns the user and the secret as containerd takes them: without a user the
// secret is an identity token.
func (c Credentials) pair() (user, secret string) {
	if c.IdentityToken != "" {
		return "", c.IdentityToken
	}
	return c.Username, c.Password
}

// maxCredentials bounds the file of credentials, in bytes.
const maxCredentials = 1 << 20

// readCredentials reads what Docker's config.json states itself. No helper is run: that
// is for the user's own program.
func readCredentials(path string) (map[string]Credentials, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("file %q has the mode %04o, by which others than its owner may use it", path, info.Mode().Perm())
	}
	var data []byte
	if err == nil {
		data, err = owndir.ReadFile(path, maxCredentials)
	}
	file := configfile.New(path)
	if err == nil {
		err = file.LoadFromReader(bytes.NewReader(data))
	}
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.DaemonConf, "registry.credentials", fmt.Errorf("registries.credentials: %w", err), "give a config.json as docker login writes it, which root alone may read")
	}
	all := map[string]Credentials{}
	for host, auth := range file.AuthConfigs {
		if host == hubKey {
			host = hubAPI
		}
		all[host] = Credentials{Username: auth.Username, Password: auth.Password, IdentityToken: auth.IdentityToken}
	}
	return all, nil
}
