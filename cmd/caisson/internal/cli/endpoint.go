package cli

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/contexts"
)

// remoteFlags say which daemon is called, where it is not that of the socket.
type remoteFlags struct {
	flags                      *pflag.FlagSet
	host, context              string
	ca, cert, certKey, keyFile string
}

func (a *App) remoteFlags(f *pflag.FlagSet) {
	r := &a.remote
	r.flags = f
	f.StringVar(&r.host, "host", "", "`URL` of a daemon elsewhere: tcp://HOST:PORT or ssh://USER@HOST (env CAISSON_HOST)")
	f.StringVar(&r.context, "context", "", "`NAME` of the context with the daemon (env CAISSON_CONTEXT)")
	r.AddCredentials(f)
	for _, name := range credentialFlags {
		_ = f.MarkHidden(name) // it is there; the help of context create tells of it
	}
}

var credentialFlags = []string{"tls-ca", "tls-cert", "tls-key", "key-file"}

// AddCredentials adds the flags of keys and certificates for a daemon on another host.
func (r *remoteFlags) AddCredentials(f *pflag.FlagSet) {
	f.StringVar(&r.ca, "tls-ca", "", "`FILE` with the certificates that sign the daemon's (env CAISSON_TLS_CA; default: those of this host)")
	f.StringVar(&r.cert, "tls-cert", "", "`FILE` with the client's own certificate (env CAISSON_TLS_CERT)")
	f.StringVar(&r.certKey, "tls-key", "", "`FILE` with the key of that certificate (env CAISSON_TLS_KEY)")
	f.StringVar(&r.keyFile, "key-file", "", "`FILE` with a key of caisson key create (env CAISSON_KEY_FILE, or the key itself in CAISSON_KEY)")
}

// Elsewhere reports whether the daemon is not reached by a socket of this host.
func (a *App) Elsewhere() (bool, error) {
	o, err := a.endpoint()
	return o.Dial != nil, err
}

// endpoint is the daemon that is called: that of a flag, else of a variable, else of the context
// in use, else of the socket.
func (a *App) endpoint() (api.Options, error) {
	r := a.remote
	given := 0
	for _, name := range []string{"socket", "host", "context"} {
		if r.flags != nil && r.flags.Changed(name) {
			given++
		}
	}
	if given > 1 {
		return api.Options{}, Usage("--socket, --host and --context exclude each other")
	}
	host, context := r.host, r.context
	if given == 0 {
		if host = a.env("CAISSON_HOST"); host == "" && a.env("CAISSON_SOCKET") == "" {
			context = a.env("CAISSON_CONTEXT")
		}
	}
	switch {
	case host != "":
		return a.hostOf(contexts.Context{Host: host})
	case r.flags != nil && (r.flags.Changed("host") || r.flags.Changed("context") && context == ""):
		return api.Options{}, Usage("--host and --context need a value")
	case given == 0 && context == "" && a.env("CAISSON_SOCKET") == "":
		c, err := contexts.Current(a.LookupEnv)
		if err != nil || c == nil {
			return api.Options{Socket: a.Socket}, err
		}
		return a.hostOf(*c)
	case context != "" && context != contexts.Default:
		c, err := contexts.Find(a.LookupEnv, context)
		if err != nil {
			return api.Options{}, err
		}
		return a.hostOf(c)
	}
	if given == 0 || r.flags.Changed("socket") || context == contexts.Default {
		if err := a.noCredentials(); err != nil {
			return api.Options{}, err
		}
	}
	return api.Options{Socket: a.Socket}, nil
}

// noCredentials refuses flags that a socket would ignore.
func (a *App) noCredentials() error {
	for _, name := range credentialFlags {
		if a.remote.flags != nil && a.remote.flags.Changed(name) {
			return Usage("--%s needs --host tcp://HOST:PORT", name)
		}
	}
	return nil
}

// hostOf is c, with what flags and variables say of it. Variables of credentials are for tcp://
// alone: they may be set for all calls.
func (a *App) hostOf(c contexts.Context) (api.Options, error) {
	r := a.remote
	h := api.Host{URL: c.Host, CA: cmp.Or(r.ca, c.CA), Cert: cmp.Or(r.cert, c.Cert), CertKey: cmp.Or(r.certKey, c.CertKey), KeyFile: cmp.Or(r.keyFile, c.KeyFile)}
	if len(c.Host) > 4 && c.Host[:4] == "tcp:" {
		h.CA, h.Cert, h.CertKey = cmp.Or(h.CA, a.env("CAISSON_TLS_CA")), cmp.Or(h.Cert, a.env("CAISSON_TLS_CERT")), cmp.Or(h.CertKey, a.env("CAISSON_TLS_KEY"))
		if h.KeyFile == "" {
			h.Key, h.KeyFile = a.env("CAISSON_KEY"), a.env("CAISSON_KEY_FILE")
		}
	}
	return h.Options()
}

// GivenContext is the one that the flags of a call describe.
func (a *App) GivenContext() (contexts.Context, error) {
	r := a.remote
	if r.host == "" || r.flags.Changed("socket") || r.flags.Changed("context") {
		return contexts.Context{}, Usage("--host is missing: give tcp://HOST:PORT or ssh://USER@HOST")
	}
	c := contexts.Context{Host: r.host}
	for _, f := range []struct {
		to    *string
		given string
	}{{&c.CA, r.ca}, {&c.Cert, r.cert}, {&c.CertKey, r.certKey}, {&c.KeyFile, r.keyFile}} {
		if f.given == "" {
			continue
		}
		path, err := filepath.Abs(f.given)
		if err != nil {
			return contexts.Context{}, sbxerr.Wrap(sbxerr.ClientIO, "caisson.context", err)
		}
		*f.to = path
	}
	_, err := api.Host{URL: c.Host, CA: c.CA, Cert: c.Cert, CertKey: c.CertKey, KeyFile: c.KeyFile}.Options()
	return c, err
}

func (a *App) env(name string) string {
	value, _ := a.LookupEnv(name)
	return value
}

// RequireLocal refuses a verb that works on files of the daemon's host.
func (a *App) RequireLocal(verb string) error {
	elsewhere, err := a.Elsewhere()
	if err == nil && elsewhere {
		err = sbxerr.WithRemedy(sbxerr.NotRemote, "caisson.host", fmt.Errorf("caisson %s works on files of the daemon's host", verb), "run it there, such as by ssh")
	}
	return err
}
