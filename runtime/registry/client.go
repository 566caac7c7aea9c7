package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/log"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

const opPull = "registry.pull"

// How long a registry may send nothing, and the first pause before a request is sent again.
const (
	stallTime  = 30 * time.Second
	firstPause = 500 * time.Millisecond
)

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

// Client lets images be fetched from the registries of a Config.
type Client struct {
	c     Config
	files map[string]Credentials // of Credentials, by host
	rules []rule                 // of Verify
}

// New checks c. It connects to nothing.
func New(c Config) (*Client, error) {
	c.Stall, c.Pause = cmp.Or(c.Stall, stallTime), cmp.Or(c.Pause, firstPause)
	// containerd's packages log hosts.toml. An error is returned, too.
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

// Open finds what r leads to, by a process of program. The caller closes the Session.
func (c *Client) Open(ctx context.Context, program imageproc.Program, r Reference, caller Caller, l image.Limits) (*Session, error) {
	if err := c.Check(r); err != nil {
		return nil, err
	}
	rule, err := c.ruleFor(r.repo)
	if err != nil {
		return nil, err
	}
	if err := c.sweep(); err != nil {
		return nil, err
	}
	servers, timeout, err := c.servers(ctx, r, caller)
	if err != nil {
		return nil, err
	}
	until, bounded := ctx.Deadline()
	if !bounded {
		until = time.Now().Add(c.c.Timeout)
	}
	s := &Session{
		dialer: newDialer(servers, c.realms(r), timeout), ref: r, rule: rule, limits: l, spool: spool{dir: c.c.SpoolDir, uid: caller.UID, repo: r.repo},
		ahead: make(chan struct{}, layersAhead), gone: make(chan struct{}), fetches: map[string]*fetch{}, wanted: map[int]*want{},
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s, s.start(program, imagework.Registry{
		Host: r.Host, Repository: r.repo, Reference: r.full,
		Servers: servers, Realms: c.realms(r), Environment: proxies(),
		Until: until.Add(time.Second), // the daemon ends it first
		Stall: c.c.Stall, Pause: c.c.Pause,
	})
}

// start starts the process, and awaits what the name leads to.
func (s *Session) start(program imageproc.Program, r imagework.Registry) (err error) {
	s.p, err = program.Start(s.ctx, imageproc.Job{
		Kind: imagework.KindFetch, What: "pull " + s.ref.Name, Op: "images.pull", Request: r, Disk: s.limits.Bytes, Give: s.give,
	})
	if err == nil {
		err = s.p.Expect(imagework.MessageTarget, imageproc.MaxMessage, &s.Target)
	}
	if err == nil {
		if bad := s.checkTarget(); bad != nil {
			err = s.p.Broken(bad)
		}
	}
	if err != nil {
		err = s.explain(s.ctx, err)
		s.cancel(nil)
		return err
	}
	s.wg.Go(s.receive)
	return nil
}

// checkTarget refuses what is not the image of a name with a digest.
func (s *Session) checkTarget() error {
	d := s.Target
	if d.Digest.Validate() != nil || d.Size < 0 || s.ref.Digest != "" && d.Digest != s.ref.Digest {
		return fmt.Errorf("%s leads to %d bytes of the digest %.80q", s.ref.full, d.Size, d.Digest)
	}
	return nil
}

// Find has the image found.
func (s *Session) Find(ctx context.Context, program imageproc.Program) (*imagework.Remote, error) {
	request := imagework.Request{Limits: s.limits, Target: s.Target}
	if s.rule.Require == RequireSignature {
		request.Signed = &imagework.Signed{Key: s.rule.key, Name: s.ref.Name, Rule: s.rule.name}
	}
	return imagework.Find(ctx, program, s, s.ref.Name, request)
}
