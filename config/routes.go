package config

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Route leads http://NAME.caisson.internal in the sandboxes of a profile to an upstream.
type Route struct {
	Upstream   string                `yaml:"upstream" json:"upstream" jsonschema:"description=Base URL of the server that the route leads to,example=https://api.example.com/v1"`
	Fallbacks  []string              `yaml:"fallbacks" json:"fallbacks" jsonschema:"description=Base URLs of servers that are asked where those before do not answer\\, with the same credential,example=https://backup.example.com/v1"`
	Credential string                `yaml:"credential" json:"credential" jsonschema:"description=Name of the secret that is put into each request; empty is none"`
	Preset     string                `yaml:"preset" json:"preset" jsonschema:"description=Kind of client that variables lead to the route\\, without a key of its own,enum=openai,enum=anthropic,enum=git,enum=npm,enum=pip,enum=go,enum=oci"`
	Placement  string                `yaml:"placement" json:"placement" jsonschema:"description=How it is put there; absent is bearer\\, or as the preset has it,enum=bearer,enum=basic,enum=header,enum=query"`
	Parameter  string                `yaml:"parameter" json:"parameter" jsonschema:"description=Of header and query: its name; of basic: the user,example=X-Api-Key"`
	Methods    []string              `yaml:"methods" json:"methods" jsonschema:"description=Methods that pass; absent are all"`
	Paths      []string              `yaml:"paths" json:"paths" jsonschema:"description=Paths below the upstream's that pass: * is a segment\\, ** at the end any number; absent are all,example=/v1/**"`
	CA         string                `yaml:"ca" json:"ca" jsonschema:"description=File with the certificates that the upstream's must descend from; absent are those that the host trusts,example=file:/etc/caisson/corp-ca.pem"`
	Private    bool                  `yaml:"private" json:"private" jsonschema:"description=The upstream may have an address that is not public"`
	ClientCert string                `yaml:"client_cert" json:"client_cert" jsonschema:"description=File with the certificate that the upstream is shown,example=file:/etc/caisson/client.pem"`
	ClientKey  string                `yaml:"client_key" json:"client_key" jsonschema:"description=Name of the secret that is its key: PKCS #8\\, DER in base64 on one line"`
	Strip      []string              `yaml:"strip" json:"strip" jsonschema:"description=Headers of requests that the upstream does not get"`
	ClientKeys string                `yaml:"client_keys" json:"client_keys" jsonschema:"description=What becomes of a request by which the client authenticates: its key is taken out\\, or it is refused; absent is strip,enum=strip,enum=refuse"`
	Aliases    []string              `yaml:"aliases" json:"aliases" jsonschema:"description=Further places where it is reached inside\\, by plain HTTP: HOST[:PORT][/PATH],example=host.docker.internal:8430/v1"`
	OnRequest  bool                  `yaml:"on_request" json:"on_request" jsonschema:"description=Only sandboxes that name it have it (--route)"`
	Models     map[string]RouteModel `yaml:"models" json:"models" jsonschema:"description=Of the presets openai and anthropic: other upstreams by the model that a request names\\, NAME* for all that begin so"`
	Budget     Budgets               `yaml:"budget" json:"budget" jsonschema:"description=What requests may take together\\, by what shares it; past it they are refused with SBX-713"`

	Auth string `yaml:"auth" json:"auth" jsonschema:"description=Of the preset oci: base URL of the server that gives tokens for the registry; absent is the upstream,example=https://auth.docker.io"`

	// Of the preset git, and the first of oci.
	Repositories []string `yaml:"repositories" json:"repositories" jsonschema:"description=Of the presets git and oci: repositories that pass\\, below the upstream,example=acme/*"`
	Access       string   `yaml:"access" json:"access" jsonschema:"description=Of the preset git: read is fetches alone; absent is read,enum=read,enum=write"`
	Branches     []string `yaml:"branches" json:"branches" jsonschema:"description=Of the preset git: branches that a push may update; absent are all,example=agent/**"`
}

// RefuseKeys is the value of client_keys by which requests with keys of clients are refused.
const RefuseKeys = "refuse"

// RouteModel is the upstream of a route for some models.
type RouteModel struct {
	Upstream   string `yaml:"upstream" json:"upstream" jsonschema:"description=As upstream of the route"`
	Credential string `yaml:"credential" json:"credential" jsonschema:"description=As credential of the route"`
	Placement  string `yaml:"placement" json:"placement" jsonschema:"description=As placement of the route,enum=bearer,enum=basic,enum=header,enum=query"`
	Parameter  string `yaml:"parameter" json:"parameter" jsonschema:"description=As parameter of the route"`
	CA         string `yaml:"ca" json:"ca" jsonschema:"description=As ca of the route"`
	Private    bool   `yaml:"private" json:"private" jsonschema:"description=As private of the route"`
}

// ForModel is the route that m leads to, with the rest of r.
func (r Route) ForModel(m RouteModel) Route {
	r.Upstream, r.Credential, r.Placement, r.Parameter, r.CA, r.Private = m.Upstream, m.Credential, m.Placement, m.Parameter, m.CA, m.Private
	r.Models, r.Fallbacks, r.Aliases, r.ClientCert, r.ClientKey, r.Budget = nil, nil, nil, "", "", Budgets{}
	return r
}

// Uses reports whether requests by the route may carry a secret.
func (r Route) Uses(secret string) bool {
	for _, m := range r.Models {
		if m.Credential == secret {
			return true
		}
	}
	return r.Credential == secret || r.ClientKey == secret
}

// CAFile returns the path of the file with certificates, empty for none.
func (r Route) CAFile() string { return strings.TrimPrefix(r.CA, fileReference) }

// ClientFile returns the path of the file with the client's certificate, empty for none.
func (r Route) ClientFile() string { return strings.TrimPrefix(r.ClientCert, fileReference) }

// maxRoute bounds the text of a route that a request gives, in bytes.
const maxRoute = 16 << 10

// ParseRoute reads a route of one sandbox, which is written as a route of a profile. It may use
// the secrets of c.
func (c *Config) ParseRoute(label, text string) (r Route, err error) {
	key := "route " + label
	if len(text) > maxRoute {
		return r, fmt.Errorf("%s: its %d bytes are more than %d", key, len(text), maxRoute)
	}
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	switch err := dec.Decode(&r); {
	case errors.Is(err, io.EOF):
		return r, fmt.Errorf("%s: it says nothing", key)
	case err != nil:
		return r, fmt.Errorf("%s: %w", key, explain(err, []byte(text)))
	case !errors.Is(dec.Decode(new(Route)), io.EOF):
		return r, fmt.Errorf("%s: it is more than one document", key)
	case r.OnRequest:
		return r, fmt.Errorf("%s: on_request is for routes of profiles", key)
	}
	return r, c.validateRoute(key, r)
}

// SecretSource is where the value of a secret comes from.
type SecretSource struct {
	Kind string // SecretFile, SecretCredential SecretVariable or SecretCommand
	From string // the path, the name, or the program and its arguments
}

// The kinds of sources.
const (
	SecretFile       = "file"       // a file of the host
	SecretCredential = "credential" // a credential that systemd gave the daemon
	SecretVariable   = "env"        // a variable that the daemon was started with
	SecretCommand    = "command"    // what a program prints
)

// SecretSources returns the source of each secret that refers to one.
func (c *Config) SecretSources() map[string]SecretSource {
	sources := map[string]SecretSource{}
	for name, reference := range c.Secrets {
		kind, from, _ := strings.Cut(reference, ":")
		switch kind {
		case SecretFile, SecretCredential, SecretVariable, SecretCommand: // else it may be a value
			sources[name] = SecretSource{kind, from}
		}
	}
	return sources
}

// KnowSecrets has routes use secrets that are kept elsewhere, by name.
func (c *Config) KnowSecrets(names iter.Seq[string]) {
	c.keptSecrets = map[string]bool{}
	for name := range names {
		c.keptSecrets[name] = true
	}
}

// CountSecrets is how many there are, with those kept elsewhere.
func (c *Config) CountSecrets() int {
	n := len(c.Secrets)
	for name := range c.keptSecrets {
		if _, ok := c.Secrets[name]; !ok {
			n++
		}
	}
	return n
}

// ParseSecret reads a reference to the value of a secret that is set while the daemon runs. A
// variable is none: a daemon takes its variables when it starts.
func ParseSecret(name, reference string) (SecretSource, error) {
	kind, from, _ := strings.Cut(reference, ":")
	switch kind {
	case SecretFile, SecretCredential, SecretCommand:
		s := SecretSource{kind, from}
		return s, s.validate(name)
	case SecretVariable, "fd":
		return SecretSource{}, fmt.Errorf("a source %s: is not taken: the daemon keeps no value, and variables and descriptors of a caller do not outlive it", kind)
	}
	return SecretSource{}, errors.New("the source is neither file:PATH nor credential:NAME or command:PROGRAM")
}

// validateSecrets checks the references to secrets, and those of routes to them. It never
// shows a text that may be a secret itself.
func (c *Config) validateSecrets() error {
	var errs []error
	if d := time.Duration(c.SecretsAge); d != 0 && d < time.Second {
		errs = append(errs, fmt.Errorf("secrets_refresh: %s is less than 1s, and not 0", d))
	}
	sources := c.SecretSources()
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		errs = append(errs, sources[name].validate(name))
	}
	for _, profile := range slices.Sorted(maps.Keys(c.Profiles)) {
		routes := c.Profiles[profile].Routes
		for _, label := range slices.Sorted(maps.Keys(routes)) {
			errs = append(errs, c.validateRoute(fmt.Sprintf("profiles.%s.routes.%s", profile, label), routes[label]))
		}
	}
	return errors.Join(errs...)
}

// variable is a name that a variable of the environment may have.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s SecretSource) validate(name string) error {
	const longest = 255 // name of a file
	switch s.Kind {
	case SecretFile:
		return absolute("secrets."+name, s.From)
	case SecretCredential:
		if s.From == "" || s.From == "." || s.From == ".." || len(s.From) > longest || strings.ContainsAny(s.From, "/\x00") {
			return fmt.Errorf("secrets.%s: is no credential of systemd: give its name alone, without a slash, such as credential:%s", name, name)
		}
	case SecretVariable:
		if !variable.MatchString(s.From) {
			return fmt.Errorf("secrets.%s: is no name of a variable: give letters, digits and underscores, such as env:MODELS_KEY", name)
		}
	case SecretCommand:
		program, _, _ := strings.Cut(s.From, " ")
		return absolute("secrets."+name, program)
	default:
		return fmt.Errorf("secrets.%s: is no reference to a file, credential, variable or command, give one such as file:/etc/caisson/%s.key, credential:%s, env:MODELS_KEY or command:/usr/bin/pass show %s", name, name, name, name)
	}
	return nil
}

func (c *Config) validateRoute(key string, r Route) error {
	var errs []error
	for _, of := range [][2]string{{"credential", r.Credential}, {"client_key", r.ClientKey}} {
		field, name := of[0], of[1]
		if _, ok := c.Secrets[name]; !ok && !c.keptSecrets[name] && name != "" {
			errs = append(errs, fmt.Errorf("%s.%s: there is no secret %q: add it under secrets, as %s: file:/etc/caisson/%s.key, or with caisson secret set", key, field, name, name, name))
		}
	}
	for _, of := range [][2]string{{"ca", r.CA}, {"client_cert", r.ClientCert}} {
		field, reference := of[0], of[1]
		path, isFile := strings.CutPrefix(reference, fileReference)
		switch {
		case reference == "":
		case !isFile:
			errs = append(errs, fmt.Errorf("%s.%s: is no reference to a file, give one such as file:/etc/caisson/corp-ca.pem", key, field))
		default:
			errs = append(errs, absolute(key+"."+field, path))
		}
	}
	if len(r.Fallbacks) > 0 && r.Preset == "npm" {
		errs = append(errs, fmt.Errorf("%s.fallbacks: the preset npm has none: its packages are where the first registry says", key))
	}
	if len(r.Models) > 0 && !r.CountsTokens() {
		errs = append(errs, fmt.Errorf("%s.models: only requests of the presets openai and anthropic name a model", key))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Models)) {
		errs = append(errs, c.validateRoute(key+".models."+name, r.ForModel(r.Models[name])))
	}
	return errors.Join(append(errs, c.validateBudgets(key, r))...)
}
