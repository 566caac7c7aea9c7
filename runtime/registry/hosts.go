package registry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// hostsFile is hosts.toml:
// https://github.com/containerd/containerd/blob/v2.4.2/docs/hosts.md
type hostsFile struct {
	hostEntry
	Server string               `toml:"server"`
	Host   map[string]hostEntry `toml:"host"`
	empty  bool                 // or not there: what else is in its directory counts
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

// servers returns which servers stand for the registry of r, its mirrors first, and how long a
// connection to one may take.
func (c *Client) servers(ctx context.Context, r Reference, caller Caller) ([]imagework.Server, time.Duration, error) {
	dir, file, err := c.checkHostsFile(r.Host)
	if err != nil {
		return nil, 0, err
	}
	scheme := "https"
	if dir == "" && imagework.Loopback(r.Host) {
		scheme = "http"
	}
	hosts, err := config.ConfigureHosts(ctx, config.HostOptions{
		HostDir: func(string) (string, error) { return dir, nil }, DefaultScheme: scheme,
	})(r.Host)
	var list []imagework.Server
	for i, h := range hosts {
		user, secret := c.credentials(r, caller, h.Host).pair()
		s := imagework.Server{
			Scheme: h.Scheme, Host: h.Host, Path: h.Path, Capabilities: uint8(h.Capabilities), Header: h.Header, User: user, Secret: secret,
		}
		var bad error
		s.CA, bad = file.authorities(dir, s.Origin(), i == len(hosts)-1)
		if tr, ok := h.Client.Transport.(*http.Transport); ok && bad == nil {
			s.SkipVerify = tr.TLSClientConfig.InsecureSkipVerify
			s.Certificates, bad = certificates(tr.TLSClientConfig.Certificates)
		}
		list, err = append(list, s), errors.Join(err, bad)
	}
	if err != nil {
		return nil, 0, sbxerr.New(sbxerr.DaemonConf, "registry.hosts", "the directory %q: %w", dir, err)
	}
	return list, file.dialTimeout(), nil
}

// certificates are those of a client, to be handed on.
func certificates(own []tls.Certificate) (list []imagework.Certificate, err error) {
	for _, c := range own {
		key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			return nil, err
		}
		list = append(list, imagework.Certificate{Chain: c.Certificate, Key: key})
	}
	return list, nil
}

// authorities reads what the certificate of a mirror, or of the registry itself, may be signed by
// beside the host's authorities. containerd has read the files.
func (f *hostsFile) authorities(dir, origin string, itself bool) (list [][]byte, err error) {
	entries := []hostEntry{f.hostEntry}
	if !itself {
		entries = nil
		for name, e := range f.Host {
			if originOf(name) == origin {
				entries = append(entries, e)
			}
		}
	}
	var files []string
	for _, e := range entries {
		switch ca := e.CA.(type) {
		case string:
			files = append(files, ca)
		case []any:
			for _, name := range ca {
				files = append(files, fmt.Sprint(name))
			}
		}
	}
	if f.empty && dir != "" {
		files, err = filepath.Glob(filepath.Join(dir, "*.crt"))
	}
	for _, name := range files {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		data, bad := os.ReadFile(name)
		list, err = append(list, data), errors.Join(err, bad)
	}
	return list, err
}

// originOf is that of a server as hosts.toml names it.
func originOf(server string) string {
	if !strings.HasPrefix(server, "http") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return imagework.Origin(u)
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
	f.empty = len(data) == 0
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
	local := imagework.Loopback(u.Host)
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
