package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/runtime/egress"
)

// The bounds of the file of a secret, in bytes: package secret of the gateway has those of
// the value, which may have a line end after it.
const (
	leastSecretFile = 8
	mostSecretFile  = 8<<10 + 2
)

// secrets are the sources of the secrets of c. The daemon opens them and never reads them.
func secrets(c config.Config) map[string]egress.Source {
	sources := map[string]egress.Source{}
	for name, path := range c.SecretFiles() {
		sources[name] = func() (*os.File, error) { return openSecret(name, path) }
	}
	return sources
}

// openSecret opens the file of a secret, which nobody but root can read or change.
func openSecret(name, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold the daemon
	if err == nil {
		if err = checkSecret(f); err != nil {
			err = fmt.Errorf("file %q %w", path, errors.Join(err, f.Close()))
		}
	}
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.DaemonConf, "caissond.secrets", fmt.Errorf("secrets.%s: %w", name, err),
			"give a file of root's that nobody else may read, with the value on one line")
	}
	return f, nil
}

func checkSecret(f *os.File) error {
	if err := checkOwn(f); err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() < leastSecretFile:
		return fmt.Errorf("has %d bytes: a secret has at least %d, or it could not be masked", info.Size(), leastSecretFile)
	case info.Size() > mostSecretFile:
		return fmt.Errorf("is longer than %d bytes", mostSecretFile)
	}
	return nil
}

// checkSecrets refuses secrets that cannot be read.
func checkSecrets(c config.Config) error {
	sources := secrets(c)
	if len(sources) > control.MaxSecrets {
		return sbxerr.New(sbxerr.DaemonConf, "caissond.secrets", "secrets: there are %d, at most %d", len(sources), control.MaxSecrets)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f, err := sources[name]()
		if err == nil {
			err = f.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// maxCA bounds a file of certificates, in bytes.
const maxCA = 64 << 10

// routesOf makes the routes of a profile of what its configuration says.
func routesOf(from map[string]config.Route) (map[string]policy.Route, error) {
	if len(from) == 0 {
		return nil, nil
	}
	routes := map[string]policy.Route{}
	var errs []error
	for _, label := range slices.Sorted(maps.Keys(from)) {
		r := from[label]
		ca, err := readCA(r.CAFile())
		if err != nil {
			errs = append(errs, fmt.Errorf("routes.%s.ca: %w", label, err))
		}
		scope, err := gitScope(label, r)
		if err != nil {
			errs = append(errs, err)
		}
		placement, parameter := placed(r)
		routes[label] = policy.Route{
			Upstream: r.Upstream, Credential: r.Credential, Placement: policy.Placement(placement), Parameter: parameter,
			Methods: r.Methods, Paths: r.Paths, CA: ca, Private: r.Private, Git: scope,
		}
	}
	return routes, errors.Join(errs...)
}

func readCA(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was read only
	data, err := io.ReadAll(io.LimitReader(f, maxCA+1))
	if err == nil && len(data) > maxCA {
		err = fmt.Errorf("file %q is longer than %d bytes", path, maxCA)
	}
	return string(data), err
}
