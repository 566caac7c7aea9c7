package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

// sourcesOf are the sources of the secrets of c. The daemon opens them and never reads them.
func sourcesOf(c config.Config) map[string]egress.Source {
	sources := map[string]egress.Source{}
	for name, s := range c.SecretSources() {
		sources[name] = opened(name, s, &printed)
	}
	return sources
}

// opened opens a secret, whose value a command may have printed.
func opened(name string, s config.SecretSource, by *commandSecrets) egress.Source {
	return func() (*os.File, error) { return openSecret(name, s, by) }
}

// openSecret opens the file with the value of a secret.
func openSecret(name string, s config.SecretSource, by *commandSecrets) (f *os.File, err error) {
	switch s.Kind {
	case config.SecretCredential:
		f, err = openCredential(s.From)
	case config.SecretVariable:
		f, err = started.open(s.From)
	case config.SecretCommand:
		f, err = by.open(s.From)
	default:
		f, err = openSecretFile(s.From)
	}
	if err != nil {
		return nil, refuseSecret(name, s, err)
	}
	return f, nil
}

// refuseSecret adds to err the key of a secret, and what helps.
func refuseSecret(name string, s config.SecretSource, err error) error {
	remedy := "give a file of root's that nobody else may read, with the value on one line"
	switch s.Kind {
	case config.SecretCredential:
		remedy = "have systemd give the daemon the value on one line: LoadCredential=" + s.From + ":PATH in its unit, then restart it"
	case config.SecretVariable:
		remedy = "start the daemon with the variable, with a value of one line, such as by EnvironmentFile= in its unit"
	case config.SecretCommand:
		remedy = "have the command print the value on one line; try it as root: env -i PATH=$PATH COMMAND"
	}
	return sbxerr.WithRemedy(sbxerr.DaemonConf, "caissond.secrets", fmt.Errorf("secrets.%s: %w", name, err), remedy)
}

// openSecretFile opens the file of a secret, which nobody but root can read or change.
func openSecretFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold the daemon
	if err == nil {
		if err = checkSecret(f); err != nil {
			return nil, fmt.Errorf("file %q %w", path, errors.Join(err, f.Close()))
		}
	}
	return f, err
}

// openCredential opens a credential that systemd gave the daemon (systemd.exec(5)).
func openCredential(name string) (*os.File, error) {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("credential %q: systemd gave the daemon none: CREDENTIALS_DIRECTORY is not set", name)
	}
	return openSecretFile(filepath.Join(dir, name))
}

func checkSecret(f *os.File) error {
	if err := checkOwn(f); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return checkSecretSize(info.Size())
}

func checkSecretSize(size int64) error {
	switch {
	case size < leastSecretFile:
		return fmt.Errorf("has %d bytes: a secret has at least %d, or it could not be masked", size, leastSecretFile)
	case size > mostSecretFile:
		return fmt.Errorf("is longer than %d bytes", mostSecretFile)
	}
	return nil
}

// checkSecrets refuses files of secrets that cannot be read. Credentials and variables are the
// daemon's own, which other commands do not have.
func checkSecrets(c config.Config) error {
	sources := c.SecretSources()
	if n := c.CountSecrets(); n > control.MaxSecrets {
		return sbxerr.New(sbxerr.DaemonConf, "caissond.secrets", "secrets: there are %d, at most %d", n, control.MaxSecrets)
	}
	return checkSources(sources, func(s config.SecretSource) bool { return s.Kind == config.SecretFile })
}

// checkOwnSecrets refuses credentials and variables that the daemon does not have.
func checkOwnSecrets(c config.Config) error {
	return checkSources(c.SecretSources(), func(s config.SecretSource) bool {
		return s.Kind == config.SecretCredential || s.Kind == config.SecretVariable
	})
}

func checkSources(sources map[string]config.SecretSource, checked func(config.SecretSource) bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if !checked(sources[name]) {
			continue
		}
		f, err := openSecret(name, sources[name], &printed)
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
func routesOf(from map[string]config.Route, prices map[string]config.Price) (map[string]policy.Route, error) {
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
		client, err := readCA(r.ClientFile())
		if err != nil {
			errs = append(errs, fmt.Errorf("routes.%s.client_cert: %w", label, err))
		}
		scope, err := gitScope(label, r)
		if err != nil {
			errs = append(errs, err)
		}
		if !slices.Contains([]string{"", "strip", config.RefuseKeys}, r.ClientKeys) {
			errs = append(errs, fmt.Errorf("routes.%s.client_keys: there is no %q, only strip and %s", label, sbxerr.Clip(r.ClientKeys), config.RefuseKeys))
		}
		models, err := modelsOf(label, r)
		if err != nil {
			errs = append(errs, err)
		}
		placement, parameter := placed(r)
		upstream, paths, _ := leads(r)
		methods := r.Methods
		if r.Preset == ociPreset {
			methods, paths = pulls(r)
		}
		routes[label] = policy.Route{
			Upstream: upstream, Fallbacks: r.Fallbacks, Credential: r.Credential, Placement: policy.Placement(placement), Parameter: parameter,
			ClientCert: client, ClientKey: r.ClientKey, Strip: r.Strip, Keyless: r.ClientKeys == config.RefuseKeys, Aliases: r.Aliases, Models: models, Methods: methods, Paths: paths, Registry: r.Preset == ociPreset, Auth: r.Auth, CA: ca, Private: r.Private, Git: scope,
			Tokens: r.CountsTokens(), Ask: r.Preset == "openai", Budget: limitsOf(r.Budget), Prices: pricesFor(r, prices),
		}
	}
	return routes, errors.Join(errs...)
}

// modelsOf are the upstreams of r for some models; nil are none.
func modelsOf(label string, r config.Route) (models map[string]policy.Model, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.Models)) {
		m := r.ForModel(r.Models[name])
		ca, caErr := readCA(m.CAFile())
		if caErr != nil {
			err = errors.Join(err, fmt.Errorf("routes.%s.models.%s.ca: %w", label, name, caErr))
		}
		if models == nil {
			models = map[string]policy.Model{}
		}
		placement, parameter := placed(m)
		models[name] = policy.Model{Upstream: m.Upstream, Credential: m.Credential, Placement: policy.Placement(placement), Parameter: parameter, CA: ca, Private: m.Private}
	}
	return models, err
}

// readCA reads the certificates of a route; an empty path has none.
func readCA(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := readBounded(path, nil)
	return string(data), err
}
