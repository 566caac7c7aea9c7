package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/ports"
	"github.com/caisson-run/caisson/sbxerr"
	"github.com/caisson-run/caisson/seccomp"
)

// The bounds of a request.
const (
	maxArgsBytes  = 512 << 10 // argv and env together; the kernel's own bound is above
	maxLabels     = 64
	maxLabelBytes = 4096
	maxTimeout    = 365 * 24 * time.Hour
	workspacePath = "/workspace"
	homePath      = "/home/caisson"
	defaultPath   = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// atMostTimeout is maxTimeout in a refusal.
var atMostTimeout = fmt.Sprintf("at most %dh", maxTimeout/time.Hour)

// plan is a request for a sandbox with every question answered. It is made
// before anything else is, and everything that can be refused by looking is
// refused here.
type plan struct {
	id       string
	name     string
	request  CreateRequest // as it is granted
	settings CreateRequest // as it was asked for

	image       images.Stored
	profileName string
	profile     Profile
	seccomp     seccomp.Profile
	network     netns.Mode
	policy      policy.Spec // of egress; zero in the modes none and bridge
	resolvers   []string    // whom the sandbox asks for names
	exposed     []uint16    // ports inside, to which links may lead
	links       map[string]policy.Link
	ports       []Port // of the host; one that is to be picked has the number 0

	env  []string // of every command
	cwd  string   // where a command names none
	user user

	limits   Limits
	readOnly bool       // the workspace
	grant    peer.Grant // of the caller
}

// planner is what a request is answered with.
type planner struct {
	profiles   map[string]Profile
	workspaces mount.Allowed
	network    NetworkRules
	links      map[string]policy.Link                  // that the request names
	image      func(ref string) (images.Stored, error) // as the caller means it
	rootImage  func(ref string) (images.Stored, error) // as the configuration means it
	user       func(img images.Stored, name string) (user, error)
	slots      []uint32 // groups that every user has besides: see mount.GroupSlotIDs
}

// plan answers r, or reports every reason why it cannot be honoured.
func (pl planner) plan(r CreateRequest) (*plan, error) {
	const op = "runtime.plan"
	p := &plan{id: newID(), request: r, links: pl.links}
	p.name = p.id
	profileErr := p.planProfile(pl.profiles, r)
	errs := []error{p.planIdentity(r), profileErr, checkEnv(r.Env), p.planLifetime(r), p.planWorkspace(pl.workspaces, r), p.planPorts(pl.network, r), r.Nested.check()}
	if profileErr == nil { // which has the defaults of these
		errs = append(errs, p.planNetwork(pl.network, r), p.planLimits(r), p.planImage(pl, r))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, sbxerr.Wrap(codeOf(err), op, err)
	}
	return p, nil
}

// joinReasons makes one refusal of several.
func joinReasons(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return sbxerr.Wrap(codeOf(err), "runtime.plan", err)
	}
	return nil
}

// codeOf keeps the code of the first reason that has one.
func codeOf(err error) sbxerr.Code {
	if c := sbxerr.Of(err); c != sbxerr.Unknown {
		return c
	}
	return sbxerr.Config
}

func (p *plan) planIdentity(r CreateRequest) error {
	var errs []error
	if r.Name != "" {
		p.name = r.Name
		if !nameForm.MatchString(r.Name) {
			errs = append(errs, invalid("name %q: give 1 to 63 lower-case letters, digits, and _ . - after the first", sbxerr.Clip(r.Name)))
		}
	}
	return errors.Join(append(errs, checkLabels(r.Labels), checkCallerID("session", r.Session), checkCallerID("task", r.Task))...)
}

func checkLabels(labels map[string]string) error {
	if err := atMost(len(labels), maxLabels, "labels"); err != nil {
		return err
	}
	var reasons sbxerr.Reasons
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		v, lower := labels[k], strings.ToLower(k)
		if !nameForm.MatchString(lower) || strings.HasPrefix(lower, "caisson.") {
			reasons.Add(invalid("label %q: give 1 to 63 letters, digits, and _ . - after the first; caisson. is reserved", sbxerr.Clip(k)))
		}
		if len(v) > maxLabelBytes || !utf8.ValidString(v) {
			reasons.Add(invalid("label %q: its value must be at most %d bytes of UTF-8", sbxerr.Clip(k), maxLabelBytes))
		}
	}
	return reasons.Err()
}

func checkCallerID(field, v string) error {
	if len(v) > 256 || !utf8.ValidString(v) {
		return invalid("%s: give at most 256 bytes of UTF-8", field)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return sbxerr.New(sbxerr.Config, "runtime.plan", format, args...)
}

func (p *plan) planProfile(profiles map[string]Profile, r CreateRequest) error {
	var err error
	p.profileName = r.Profile
	if p.profileName == "" {
		p.profileName = DefaultProfile
	}
	if p.profile, err = lookupProfile(profiles, p.profileName); err != nil {
		return err
	}
	p.seccomp, err = seccomp.Lookup(p.profile.Seccomp)
	return err
}

func (p *plan) planNetwork(o NetworkRules, r CreateRequest) error {
	var err error
	asked := r.network()
	asked.Links = p.links
	p.network, p.policy, err = o.networkOf(p.profile.Network, asked)
	p.resolvers = o.resolversOf(p.network)
	return err
}

func (p *plan) planPorts(o NetworkRules, r CreateRequest) error {
	var publishErr, exposeErr error
	p.ports, publishErr = ports.ParseAll(r.Publish)
	p.exposed, exposeErr = checkExposed(r.Expose)
	return errors.Join(publishErr, exposeErr, o.checkPorts(p.ports))
}

// asked is what the request says of the network, and the mode that it got by it:
// a change of its rules does not change that.
func (p *plan) asked() networkRequest {
	asked := p.request.network()
	asked.Links = p.links
	asked.Mode = string(p.network)
	return asked
}

// planLifetime checks the times of a sandbox.
func (p *plan) planLifetime(r CreateRequest) error {
	var errs []error
	for name, d := range map[string]*time.Duration{"ttl": r.TTL, "idle timeout": r.IdleTimeout} {
		if d != nil && (*d < 0 || *d > maxTimeout) {
			errs = append(errs, invalid("%s %s: give %s, such as 30m, or 0 for never", name, *d, atMostTimeout))
		}
	}
	if r.Ensure && r.Name == "" {
		errs = append(errs, invalid("ensure needs a name: it is what an existing sandbox is found by"))
	}
	return errors.Join(append(errs, checkKey(r.Key))...)
}

// maxKey bounds an idempotency key, in bytes.
const maxKey = 128

func checkKey(key string) error {
	if len(key) > maxKey {
		return invalid("the idempotency key has %d bytes: give at most %d", len(key), maxKey)
	}
	for _, r := range key {
		if r <= ' ' || r > '~' {
			return invalid("the idempotency key holds %q: give printable ASCII without spaces", r)
		}
	}
	return nil
}

func (p *plan) planWorkspace(allowed mount.Allowed, r CreateRequest) error {
	if r.Workspace == nil {
		return nil
	}
	p.readOnly = r.Workspace.Mode == "ro"
	return errors.Join(allowed.Check(r.Workspace.Dir), checkWorkspaceMode(r.Workspace.Mode))
}

func checkWorkspaceMode(mode string) error {
	switch mode {
	case "", "rw", "ro":
		return nil
	case "cow", "clone":
		return sbxerr.New(sbxerr.Workspace, "runtime.plan", "workspace mode %q is not offered yet: use rw or ro", mode)
	}
	return sbxerr.New(sbxerr.Workspace, "runtime.plan", "workspace mode %q is none of rw, ro", sbxerr.Clip(mode))
}

func (p *plan) planLimits(r CreateRequest) error {
	p.limits = p.profile.Limits
	for _, f := range []struct {
		from *int64
		to   *int64
	}{
		{r.Limits.MemoryBytes, &p.limits.MemoryBytes},
		{r.Limits.MilliCPU, &p.limits.MilliCPU},
		{r.Limits.PIDs, &p.limits.PIDs},
		{r.Limits.OpenFiles, &p.limits.OpenFiles},
		{r.Limits.TmpfsBytes, &p.limits.TmpfsBytes},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	return p.limits.validate()
}

// validate reports every limit that is out of range.
func (l Limits) validate() error {
	errs := []error{l.cgroup().Validate()}
	if l.OpenFiles < 16 || l.OpenFiles > 1<<20 {
		errs = append(errs, sbxerr.New(sbxerr.Limits, "runtime.plan", "open files %d: give 16 to 1048576, such as 1024", l.OpenFiles))
	}
	if l.TmpfsBytes < 64<<10 || l.TmpfsBytes > 1<<40 {
		errs = append(errs, sbxerr.New(sbxerr.Limits, "runtime.plan", "tmpfs size %d: give at least 64K, such as 64M", l.TmpfsBytes))
	}
	return errors.Join(errs...)
}

func (l Limits) cgroup() cgroups.Limits {
	return cgroups.Limits{PIDs: l.PIDs, MemoryBytes: l.MemoryBytes, MilliCPU: l.MilliCPU}
}

// labels are the container's. Nothing of an image is among them: engines act
// on some labels (CVE-2026-53488).
func (p *plan) labels() map[string]string {
	return map[string]string{
		"caisson.managed": "true",
		"caisson.profile": p.profileName,
		"caisson.session": p.request.Session,
		"caisson.task":    p.request.Task,
	}
}

// record is what is kept of a sandbox that is made by p at the wall clock's
// created.
func (p *plan) record(boot string, created time.Time) record {
	r := p.request
	rec := record{
		Version: recordVersion, Boot: boot, ID: p.id, Name: p.name, Image: p.image.Key(), ImageDigest: p.image.Digest, ChainID: p.image.ChainID,
		Profile: p.profileName, Network: p.network, Asked: p.asked(), Policy: p.policy, Exposed: p.exposed, User: p.user, Env: p.env, Cwd: p.cwd, CreatedAt: created,
		Labels: maps.Clone(r.Labels), Session: r.Session, Task: r.Task, Workspace: r.Workspace, Limits: p.limits,
		Key: r.Key, Settings: p.settings,
	}
	set(&rec.IdleTimeout, r.IdleTimeout)
	if r.Nested != nil {
		budget := r.Nested.budget(p.limits)
		rec.Nested = &budget
	}
	rec.belong(p.grant)
	return rec
}
