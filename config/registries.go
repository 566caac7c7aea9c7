package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Registries says which registries images may be pulled from. Their mirrors and
// certificates are in files of HostsDir.
type Registries struct {
	Allowed     []string `yaml:"allowed" json:"allowed" jsonschema:"description=Registries that images may be pulled from\\, HOST[:PORT] each; empty allows none,example=registry.example.com"`
	Realms      []string `yaml:"realms" json:"realms" jsonschema:"description=Token servers\\, HOST[:PORT] each\\, that may get the credentials of these registries. A registry's own host and port may always,example=auth.example.com"`
	HostsDir    string   `yaml:"hosts_dir" json:"hosts_dir" jsonschema:"description=Directory with mirrors and certificates\\, HOST/hosts.toml as for containerd; empty is none,example=/etc/caisson/hosts.d"`
	Credentials string   `yaml:"credentials" json:"credentials" jsonschema:"description=Docker's config.json with credentials for root's pulls and their mirrors; root alone may read it; empty is none,example=file:/root/.docker/config.json"`
	Timeout     Duration `yaml:"timeout" json:"timeout" jsonschema:"description=Time that one pull may take; a repeated pull goes on where it was"`
}

func defaultRegistries() Registries { return Registries{Timeout: Duration(5 * time.Minute)} }

// CredentialsFile returns the path of the file with credentials, empty for none.
func (r Registries) CredentialsFile() string {
	return strings.TrimPrefix(r.Credentials, fileReference)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

func (r Registries) validate() error {
	var errs []error
	for i, host := range r.Allowed {
		errs = append(errs, checkHost(fmt.Sprintf("registries.allowed[%d]", i), host))
	}
	for i, host := range r.Realms {
		errs = append(errs, checkHost(fmt.Sprintf("registries.realms[%d]", i), host))
	}
	if r.HostsDir != "" {
		errs = append(errs, absolute("registries.hosts_dir", r.HostsDir))
	}
	if path, isFile := strings.CutPrefix(r.Credentials, fileReference); r.Credentials != "" {
		if !isFile { // it may be the credentials themselves
			errs = append(errs, errors.New("registries.credentials: is no reference to a file, give one such as file:/root/.docker/config.json"))
		} else {
			errs = append(errs, absolute("registries.credentials", path))
		}
	}
	if t := time.Duration(r.Timeout); t < time.Second || t > 24*time.Hour {
		errs = append(errs, fmt.Errorf("registries.timeout: %s is not in 1s to 24h", t))
	}
	return errors.Join(errs...)
}

// checkHost takes HOST and HOST:PORT.
func checkHost(key, host string) error {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return fmt.Errorf("%s: %q has no port from 1 to 65535", key, host)
		}
		name = h
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err != nil && !hostName.MatchString(name) {
		return fmt.Errorf("%s: %q is no HOST or HOST:PORT: give one such as registry.example.com, without https:// and without a path", key, host)
	}
	return nil
}
