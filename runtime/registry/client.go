package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/log"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// stallTime is how long a registry may send nothing.
const stallTime = 30 * time.Second

// Config says which registries are asked, and how.
type Config struct {
	Allowed     []string      // hosts, HOST[:PORT] each
	Realms      []string      // hosts that may ask for credentials on behalf of a registry
	HostsDir    string        // directory of HOST/hosts.toml, as containerd has it; empty for none
	Credentials string        // Docker's config.json of root's; empty for none
	Timeout     time.Duration // of a whole pull
	Verify      []Rule        // the first for a repository counts; empty requires nothing
	SpoolDir    string        // an existing directory that only root uses
	Stall       time.Duration // how long a registry may send nothing; 0 is 30 s
	Pause       time.Duration // before the second try; doubles for each further one; 0 is 500 ms
}

// Client fetches from the registries of a Config.
type Client struct {
	c     Config
	files map[string]Credentials // of Credentials, by host
	rules []rule                 // of Verify
}

// New checks c. It connects to nothing.
func New(c Config) (*Client, error) {
	c.Stall, c.Pause = cmp.Or(c.Stall, stallTime), cmp.Or(c.Pause, firstPause)
	// containerd's packages log each request that fails. Its error is returned, too.
	if err := log.SetLevel(log.PanicLevel.String()); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "registry.new", err)
	}
	files, err := readCredentials(c.Credentials)
	rules, ruleErr := compile(c.Verify)
	client := &Client{c: c, files: files, rules: rules}
	err = errors.Join(err, ruleErr)
	for _, host := range c.Allowed {
		_, _, fileErr := client.checkHostsFile(host)
		err = errors.Join(err, fileErr)
	}
	return client, err
}

// Timeout is the time that a pull may take.
func (c *Client) Timeout() time.Duration { return c.c.Timeout }

// Configured reports whether any registry is allowed.
func (c *Client) Configured() bool { return len(c.c.Allowed) > 0 }

// Allowed are the registries that the configuration allows.
func (c *Client) Allowed() []string { return c.c.Allowed }

// Check refuses a registry that the configuration does not allow.
func (c *Client) Check(r Reference) error {
	if slices.Contains(c.c.Allowed, r.Host) {
		return nil
	}
	allowed := "none"
	if len(c.c.Allowed) > 0 {
		allowed = strings.Join(c.c.Allowed, ", ")
	}
	return sbxerr.WithRemedy(sbxerr.PullRefused, "registry.check", fmt.Errorf("%q: %w; allowed: %s", r.Host, errNotAllowed, allowed),
		fmt.Sprintf("add %q to registries.allowed in the daemon's configuration, or import the image from a file", r.Host))
}

// Caller is the user for whom something is fetched.
type Caller struct {
	UID         uint32
	Root        bool        // may use root's credentials
	Credentials Credentials // for the registry itself; the zero value is none
}

// Open finds what r leads to. The caller closes the Session.
func (c *Client) Open(ctx context.Context, r Reference, caller Caller) (*Session, error) {
	if err := c.Check(r); err != nil {
		return nil, err
	}
	if err := c.sweep(); err != nil {
		return nil, err
	}
	hosts, err := c.hosts(ctx, r, caller)
	if err != nil {
		return nil, err
	}
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: hosts})
	name, target, err := resolver.Resolve(ctx, r.full)
	if err != nil {
		return nil, explain(ctx, r, err)
	}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return nil, explain(ctx, r, err)
	}
	s := &Session{
		ref: r, resolver: resolver, fetcher: fetcher, pause: c.c.Pause, spool: spool{dir: c.c.SpoolDir, uid: caller.UID},
		Target:  ocispec.Descriptor{MediaType: target.MediaType, Digest: target.Digest, Size: target.Size},
		fetches: map[string]*fetch{}, ahead: make(chan struct{}, layersAhead),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s, nil
}
