package config

import (
	"cmp"
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
	Verify      []Verify `yaml:"verify" json:"verify" jsonschema:"description=What pulled images must have; the first rule for a repository counts\\, and a repository without one is refused; empty requires nothing"`
	Timeout     Duration `yaml:"timeout" json:"timeout" jsonschema:"description=Time that one pull may take; a repeated pull goes on where it was"`
	PullAtStart bool     `yaml:"pull_at_start" json:"pull_at_start" jsonschema:"description=Fetch the images that profiles\\, pools and languages name when the daemon starts"`
}

// Verify says what the images of some repositories must have.
type Verify struct {
	Repository string   `yaml:"repository" json:"repository" jsonschema:"description=HOST/PATH\\, HOST/PATH/* for all below\\, or *,example=registry.example.com/tools/*"`
	Require    string   `yaml:"require" json:"require" jsonschema:"enum=digest,enum=signature,enum=nothing"`
	Digests    []string `yaml:"digests" json:"digests" jsonschema:"description=With require digest: the allowed ones; absent: a request must name one"`
	Key        string   `yaml:"key" json:"key" jsonschema:"description=With require signature: public key of cosign's,example=file:/etc/caisson/cosign.pub"`
}

// KeyFile returns the path of the public key, empty for none.
func (v Verify) KeyFile() string { return strings.TrimPrefix(v.Key, fileReference) }

var repositoryPattern = regexp.MustCompile(`^(\*|[A-Za-z0-9][A-Za-z0-9.:-]*(/[a-z0-9][a-z0-9._-]*)*(/\*)?)$`)

var digestForm = regexp.MustCompile(`^sha(256:[0-9a-f]{64}|512:[0-9a-f]{128})$`)

func (v Verify) validate(key string) error {
	var errs []error
	if !repositoryPattern.MatchString(v.Repository) {
		errs = append(errs, fmt.Errorf("%s.repository: %q is no HOST/PATH, HOST/PATH/* or *", key, v.Repository))
	}
	errs = append(errs, oneOf(key+".require", v.Require, "digest", "signature", "nothing"))
	if len(v.Digests) > 0 && v.Require != "digest" {
		errs = append(errs, fmt.Errorf("%s.digests: is only for require: digest", key))
	}
	for _, d := range v.Digests {
		if !digestForm.MatchString(d) {
			errs = append(errs, fmt.Errorf("%s.digests: %q is no digest, give one such as sha256:…", key, d))
		}
	}
	if (v.Key != "") != (v.Require == "signature") {
		errs = append(errs, fmt.Errorf("%s.key: is needed with require: signature, and with nothing else", key))
	}
	if path, isFile := strings.CutPrefix(v.Key, fileReference); v.Key != "" {
		if !isFile {
			errs = append(errs, fmt.Errorf("%s.key: is no reference to a file, give one such as file:/etc/caisson/cosign.pub", key))
		} else {
			errs = append(errs, absolute(key+".key", path))
		}
	}
	return errors.Join(errs...)
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
	for i, v := range r.Verify {
		errs = append(errs, v.validate(fmt.Sprintf("registries.verify[%d]", i)))
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

// hostIn is what of a URL without its scheme may be a HOST or HOST:PORT.
var hostIn = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]+)?`)

// checkHost takes HOST and HOST:PORT.
func checkHost(key, host string) error {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil && !strings.Contains(port, "/") {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return fmt.Errorf("%s: %q has no port from 1 to 65535", key, host)
		}
		name = h
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err != nil && !hostName.MatchString(name) {
		meant := cmp.Or(hostIn.FindString(strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://")), "registry.example.com")
		return fmt.Errorf("%s: %q is no HOST or HOST:PORT: without https:// and without a path it is %q", key, host, meant)
	}
	return nil
}
