package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// hostsFile is hosts.toml:
// https://github.com/containerd/containerd/blob/v2.4.2/docs/hosts.md
type hostsFile struct {
	hostEntry
	Server string               `toml:"server"`
	Host   map[string]hostEntry `toml:"host"`
}

type hostEntry struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`
	Client       any            `toml:"client"`
	SkipVerify   bool           `toml:"skip_verify"`
	Header       map[string]any `toml:"header"`
	OverridePath bool           `toml:"override_path"`
	DialTimeout  string         `toml:"dial_timeout"`
}

// hosts returns which servers stand for the registry of r, its mirrors first.
func (c *Client) hosts(ctx context.Context, r Reference, caller Caller) (docker.RegistryHosts, error) {
	dir, file, err := c.checkHostsFile(r.Host)
	if err != nil {
		return nil, err
	}
	g := &guard{realms: c.realms(r), stall: c.c.Stall, pause: c.c.Pause}
	scheme := "https"
	if dir == "" && loopback(r.Host) {
		scheme = "http"
	}
	configured := config.ConfigureHosts(ctx, config.HostOptions{
		HostDir:       func(string) (string, error) { return dir, nil },
		DefaultScheme: scheme,
		Credentials: func(host string) (string, string, error) {
			user, secret := c.credentials(r, caller, host).pair()
			return user, secret, nil
		},
		UpdateClient: func(client *http.Client) error {
			if tr, ok := client.Transport.(*http.Transport); ok { // else it is one of ours already
				tr = tr.Clone()
				tr.DialContext = g.dialer(file.dialTimeout()).DialContext
				client.Transport = &transport{base: tr, guard: g}
			}
			client.CheckRedirect = checkRedirect
			return nil
		},
	})
	list, err := configured(r.Host)
	if err != nil {
		return nil, sbxerr.New(sbxerr.DaemonConf, "registry.hosts", "the directory %q: %w", dir, err)
	}
	for _, h := range list {
		g.servers = append(g.servers, origin(&url.URL{Scheme: h.Scheme, Host: h.Host}))
		g.local = g.local || loopback(h.Host)
	}
	return func(string) ([]docker.RegistryHost, error) { return list, nil }, nil
}

func (c *Client) realms(r Reference) []string {
	if r.Host == hub {
		return append(slices.Clip(c.c.Realms), hubRealm)
	}
	return c.c.Realms
}

// credentials returns those for one server. The caller's are for the registry itself
// only. Mirrors get root's, and only for root.
func (c *Client) credentials(r Reference, caller Caller, server string) Credentials {
	own := server == r.Host || r.Host == hub && server == hubAPI
	if own && caller.Credentials != (Credentials{}) {
		return caller.Credentials
	}
	if caller.Root {
		return c.files[server]
	}
	return Credentials{}
}

// checkHostsFile returns the directory of a host's settings, empty if it has none, and the
// file there. containerd only logs a file that it cannot read, and asks the registry without it.
func (c *Client) checkHostsFile(host string) (dir string, f hostsFile, err error) {
	if c.c.HostsDir == "" {
		return "", f, nil
	}
	dir, err = config.HostDirFromRoot(c.c.HostsDir)(host)
	if errdefs.IsNotFound(err) {
		return "", f, nil
	}
	path := filepath.Join(dir, "hosts.toml")
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) { // certificates alone
		return dir, f, nil
	}
	if err == nil {
		err = unknownKeys(toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&f))
	}
	if err == nil {
		err = f.check(host)
	}
	if err != nil {
		return "", f, sbxerr.WithRemedy(sbxerr.DaemonConf, "registry.hosts", fmt.Errorf("file %q: %w", path, err), "correct the file; nothing is asked of this registry until then")
	}
	return dir, f, nil
}

// dialTimeout is the shortest time-out of the file, for all its servers. Containerd refuses
// one that is no duration.
func (f *hostsFile) dialTimeout() time.Duration {
	least := dialTimeout
	for _, e := range append(slices.Collect(maps.Values(f.Host)), f.hostEntry) {
		if d, err := time.ParseDuration(e.DialTimeout); err == nil && d > 0 {
			least = min(least, d)
		}
	}
	return least
}

// unknownKeys names the keys that the error of a strict decoder is about.
func unknownKeys(err error) error {
	strict := (*toml.StrictMissingError)(nil)
	if !errors.As(err, &strict) {
		return err
	}
	var errs []error
	for _, e := range strict.Errors {
		line, _ := e.Position()
		errs = append(errs, fmt.Errorf("line %d: unknown key %q", line, sbxerr.Clip(strings.Join(e.Key(), "."))))
	}
	return errors.Join(errs...)
}

func (f *hostsFile) check(host string) error {
	server := f.Server
	if server == "" {
		server = "https://" + host
	}
	errs := []error{f.hostEntry.check(server)}
	for name, entry := range f.Host {
		errs = append(errs, entry.check(name))
	}
	return errors.Join(errs...)
}

// check refuses what would send content or credentials in the clear.
func (e hostEntry) check(server string) error {
	if !strings.HasPrefix(server, "http") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("%q is no address of a server: %w", sbxerr.Clip(server), err)
	}
	local := loopback(u.Host)
	var errs []error
	switch {
	case u.Host == "":
		errs = append(errs, fmt.Errorf("%q is no address of a server, give one such as https://mirror.example.com", sbxerr.Clip(server)))
	case u.Scheme != "https" && !local:
		errs = append(errs, fmt.Errorf("%q is not HTTPS: only servers of this host (localhost, 127.0.0.1) may be asked without", sbxerr.Clip(server)))
	case u.Scheme == "http" && (e.CA != nil || e.Client != nil || e.SkipVerify):
		errs = append(errs, fmt.Errorf("%q is not HTTPS, but has settings of TLS: give https://%s", sbxerr.Clip(server), u.Host))
	case e.SkipVerify && !local:
		errs = append(errs, fmt.Errorf("%q: skip_verify is for servers of this host only: give ca instead", sbxerr.Clip(server)))
	}
	for key := range e.Header {
		if strings.EqualFold(key, "Authorization") || strings.EqualFold(key, "Cookie") {
			errs = append(errs, fmt.Errorf("%q: the header %s is refused: give credentials in registries.credentials", sbxerr.Clip(server), key))
		}
	}
	return errors.Join(errs...)
}

// loopback reports whether a HOST[:PORT] can only be this host.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}
