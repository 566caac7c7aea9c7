package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idle"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/ports"
	"github.com/caisson-run/caisson/seccomp"
)

// Bounds of a request.
const (
	maxArgsBytes  = 512 << 10 // arguments and environment together, in bytes; the kernel allows more
	MaxLabels     = 64
	maxLabelBytes = 4096 // of one value
	MaxTimeout    = 365 * 24 * time.Hour
)

// What every command finds inside.
const (
	WorkspacePath = "/workspace"
	DefaultPath   = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" // where the image sets no PATH
)

// AtMostTimeout is MaxTimeout in the words of a refusal.
var AtMostTimeout = fmt.Sprintf("at most %dh", MaxTimeout/time.Hour)

// Sandbox is the plan of a sandbox: a [CreateRequest] with every question answered.
type Sandbox struct {
	ID       string
	Name     string
	Request  CreateRequest // with the defaults of the grant
	Settings CreateRequest // as the caller wrote it
	Bill     budget.Bill   // of the sandbox from inside of which the request comes; zero: from outside

	Image       images.Stored
	Notes       []string // for the caller
	ProfileName string
	Profile     Profile // its values
	Seccomp     seccomp.Profile
	Network     netns.Mode
	Policy      policy.Spec // of egress; zero in the modes none and bridge
	Resolvers   []string    // DNS resolvers
	Exposed     []uint16    // ports inside that links may reach
	links       map[string]policy.Link
	Ports       []ports.Port // published on the host; the number 0 picks a free one

	Env  []string // of every command
	Cwd  string   // of commands that name none
	User User

	OnIdle      string        // idle.Pause or idle.Remove
	IdleTimeout time.Duration // 0 is never

	Limits Limits
	Homes  []Home     // of the image
	Mounts []Mount    // the workspace and the others, a mount after the one that it lies in
	Grant  peer.Grant // of the caller

	From         *Origin     // the snapshot that it begins with; nil is none
	WritableRoot bool        // what is written to it goes to the disk
	RootDirs     []mount.Dir // that are made in a writable root
	// OwnWorkspace says that WorkspacePath is a directory of the sandbox's disk.
	OwnWorkspace bool

	MountRequests []MountRequest // those of the profile and of the request
	points        []string       // see MountPoints
	files         []string       // see SetFile
}

// Planner holds the facts by which requests are planned.
type Planner struct {
	ID         string // of the sandbox
	Profiles   map[string]Profile
	Workspaces mount.Allowed
	From       *Origin        // the snapshot that the request names, which it is on; nil is none
	Parent     *ParentNetwork // of the sandbox from inside of which the request comes, with paths of it; nil: from outside
	Network    NetworkRules
	Links      map[string]policy.Link                      // that the request names
	Image      func(ref string) (images.Stored, error)     // as the caller means it
	RootImage  func(ref string) (images.Stored, error)     // as the configuration means it
	Template   func(profile string) (images.Stored, error) // of a profile with a Setup
	Languages  map[string]string                           // names of images for RootImage
	User       func(img images.Stored, name string) (Account, error)
	CPUs       int   // of the host
	MaxTmpfs   int64 // bytes of a tmpfs for which nobody asks for a size
	IOReadBPS  int64 // of a sandbox for which nobody asks for a lower rate; 0 is unbounded
	IOWriteBPS int64
	Disk       func(bytes int64) error            // why the host gives no disk of that size; nil: it gives any
	DiskBytes  int64                              // of the disk of a writable root for which nobody asks for a size
	Snapshot   func(name string) (*Origin, error) // of a directory
	Slots      []uint32                           // groups that every user has besides: see mount.GroupSlotIDs
}

// Sandbox plans r, or reports every reason to refuse it.
func (pl Planner) Sandbox(r CreateRequest) (*Sandbox, error) {
	const op = "runtime.plan"
	p := &Sandbox{ID: pl.ID, Request: r, links: pl.Links}
	p.Name = p.ID
	profileErr := p.planProfile(pl.Profiles, r)
	if profileErr == nil && p.Profile.Unisolated != nil {
		return p, JoinReasons(p.planUnisolated(pl, r))
	}
	errs := []error{p.planIdentity(r), profileErr, checkEnv(r.Env), p.planLifetime(r), p.planMounts(pl.Workspaces, pl.Parent != nil, r), p.planPorts(pl.Network, r), r.Nested.check()}
	if profileErr == nil { // which has the defaults of these
		errs = append(errs, p.planNetwork(pl, r), p.planLimits(pl, r), p.planImage(pl, r))
	}
	err := errors.Join(errs...)
	if err == nil {
		err = p.planSnapshots(pl, r)
	}
	if err != nil {
		return nil, sbxerr.Wrap(CodeOf(err), op, err)
	}
	return p, nil
}

// JoinReasons makes one refusal of several reasons, under the code of the first.
func JoinReasons(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return sbxerr.Wrap(CodeOf(err), "runtime.plan", err)
	}
	return nil
}

// CodeOf returns the code of err, else SBX-101.
func CodeOf(err error) sbxerr.Code {
	if c := sbxerr.Of(err); c != sbxerr.Unknown {
		return c
	}
	return sbxerr.Config
}

func (p *Sandbox) planIdentity(r CreateRequest) error {
	var errs []error
	if r.Name != "" {
		p.Name = r.Name
		if !nameForm.MatchString(r.Name) {
			errs = append(errs, Invalid("name %q: give 1 to 128 letters, digits, and _ . - after the first", sbxerr.Clip(r.Name)))
		}
	}
	return errors.Join(append(errs, p.checkHostname(r.Hostname), CheckLabels(r.Labels), checkCallerID("session", r.Session), checkCallerID("task", r.Task))...)
}

// checkHostname refuses a name that could not be in /etc/hosts, or would hide a link there.
func (p *Sandbox) checkHostname(name string) error {
	if name != "" && !hostForm.MatchString(name) {
		return Invalid("hostname %q: give 1 to 63 letters, digits, and - between them", sbxerr.Clip(name))
	}
	if _, linked := p.links[strings.ToLower(name)]; linked {
		return Invalid("hostname %q is the name of a link: give another", name)
	}
	return nil
}

// Hostname is the host name inside.
func (p *Sandbox) Hostname() string { return cmp.Or(p.Request.Hostname, p.ID) }

// CheckLabels refuses labels that are too many, too long or reserved.
func CheckLabels(labels map[string]string) error {
	if err := AtMost(len(labels), MaxLabels, "labels"); err != nil {
		return err
	}
	var reasons sbxerr.Reasons
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		v, lower := labels[k], strings.ToLower(k)
		if !labelForm.MatchString(lower) || strings.HasPrefix(lower, "caisson.") {
			reasons.Add(Invalid("label %q: give 1 to 63 letters, digits, and _ . - after the first; caisson. is reserved", sbxerr.Clip(k)))
		}
		if len(v) > maxLabelBytes || !utf8.ValidString(v) {
			reasons.Add(Invalid("label %q: its value must be at most %d bytes of UTF-8", sbxerr.Clip(k), maxLabelBytes))
		}
	}
	return reasons.Err()
}

func checkCallerID(field, v string) error {
	if len(v) > 256 || !utf8.ValidString(v) {
		return Invalid("%s: give at most 256 bytes of UTF-8", field)
	}
	return nil
}

// Invalid refuses a request that can never succeed as written (SBX-101).
func Invalid(format string, args ...any) error {
	return sbxerr.New(sbxerr.Config, "runtime.plan", format, args...)
}

func (p *Sandbox) planProfile(profiles map[string]Profile, r CreateRequest) error {
	var err error
	p.ProfileName = r.Profile
	if p.ProfileName == "" {
		p.ProfileName = DefaultProfile
	}
	if p.Profile, err = LookupProfile(profiles, p.ProfileName); err != nil {
		return err
	}
	p.Seccomp, err = seccomp.Lookup(p.Profile.Seccomp)
	return err
}

func (p *Sandbox) planNetwork(pl Planner, r CreateRequest) error {
	var err error
	asked := r.network()
	asked.Links = p.links
	if pl.Parent != nil {
		p.Network, p.Policy, err = pl.Parent.NetworkOf(asked)
	} else {
		p.Network, p.Policy, err = pl.Network.NetworkOf(p.Profile.Network, asked)
	}
	p.Resolvers = pl.Network.ResolversOf(p.Network)
	return err
}

func (p *Sandbox) planPorts(o NetworkRules, r CreateRequest) error {
	var publishErr, exposeErr error
	p.Ports, publishErr = ports.ParseAll(r.Publish)
	p.Exposed, exposeErr = checkExposed(r.Expose)
	return errors.Join(publishErr, exposeErr, o.CheckPorts(p.Ports))
}

// Asked returns the network part of the request with the mode that it got. A later
// change of rules keeps the mode.
func (p *Sandbox) Asked() NetworkRequest {
	asked := p.Request.network()
	asked.Links = p.links
	asked.Mode = string(p.Network)
	return asked
}

// Defaults are what commands of the sandbox begin with.
func (p *Sandbox) Defaults() Defaults {
	tmpfs, binds := CreateRequest{Workspace: p.Request.Workspace, Mounts: p.MountRequests}.Targets()
	return Defaults{Env: p.Env, Cwd: p.Cwd, User: p.User, Limits: p.Limits, Tmpfs: tmpfs, Binds: binds, Tracing: p.Seccomp.Allows("ptrace")}.Of(p.Profile)
}

// planLifetime checks the times of a sandbox.
func (p *Sandbox) planLifetime(r CreateRequest) error {
	var errs []error
	for name, d := range map[string]*time.Duration{"ttl": r.TTL, "idle timeout": r.IdleTimeout} {
		if d != nil && (*d < 0 || *d > MaxTimeout) {
			errs = append(errs, Invalid("%s %s: give %s, such as 30m, or 0 for never", name, *d, AtMostTimeout))
		}
	}
	if r.Ensure && r.Name == "" {
		errs = append(errs, Invalid("ensure needs a name: it is what an existing sandbox is found by"))
	}
	if r.Replace && r.Name == "" {
		errs = append(errs, Invalid("replace needs a name: it is what an existing sandbox is found by"))
	}
	if r.Replace && r.Ensure {
		errs = append(errs, Invalid("ensure and replace exclude each other: keep a live sandbox of the name, or end it"))
	}
	return errors.Join(append(errs, p.planIdle(r), checkKey(r.Key))...)
}

// minIdlePause is the least time after which an idle sandbox is paused: what it does is
// measured each second.
const minIdlePause = time.Second

// planIdle takes from the profile what the request does not say.
func (p *Sandbox) planIdle(r CreateRequest) error {
	p.OnIdle = cmp.Or(r.OnIdle, p.Profile.OnIdle, idle.Remove)
	p.IdleTimeout = p.Profile.IdleTimeout
	Override(&p.IdleTimeout, r.IdleTimeout)
	if r.OnIdle == "" && p.IdleTimeout == 0 { // never
		return nil
	}
	return CheckIdle(p.OnIdle, p.IdleTimeout)
}

// CheckIdle refuses an action that there is not, and a pause without a time.
func CheckIdle(action string, after time.Duration) error {
	switch {
	case action != idle.Remove && action != idle.Pause:
		return Invalid("on idle %q: it is none of %s, %s", sbxerr.Clip(action), idle.Remove, idle.Pause)
	case action == idle.Pause && after < minIdlePause:
		return sbxerr.WithRemedy(sbxerr.Config, "runtime.plan", fmt.Errorf("on idle %s after %s: give an idle timeout of at least %s", action, after, minIdlePause), "give --idle-timeout, such as 5m")
	}
	return nil
}

// maxKey bounds an idempotency key, in bytes.
const maxKey = 128

func checkKey(key string) error {
	if len(key) > maxKey {
		return Invalid("the idempotency key has %d bytes: give at most %d", len(key), maxKey)
	}
	for _, r := range key {
		if r <= ' ' || r > '~' {
			return Invalid("the idempotency key holds %q: give printable ASCII without spaces", r)
		}
	}
	return nil
}

// planLimits takes half the memory for a tmpfs, and at most MaxTmpfs, where neither request
// nor profile has a size.
func (p *Sandbox) planLimits(pl Planner, r CreateRequest) error {
	p.Limits = p.Profile.Limits
	p.Limits.IOReadBPS = lower(p.Limits.IOReadBPS, pl.IOReadBPS)
	p.Limits.IOWriteBPS = lower(p.Limits.IOWriteBPS, pl.IOWriteBPS)
	(*settings.Limits)(&p.Limits).Override(r.Limits)
	if p.Limits.TmpfsBytes == 0 {
		p.Limits.TmpfsBytes = min(tmpfsFor(p.Limits.MemoryBytes), pl.MaxTmpfs)
	}
	p.sizeMounts()
	p.Limits.ShmBytes = cmp.Or(p.Limits.ShmBytes, p.Limits.TmpfsBytes)
	if err := errors.Join(settings.CheckZero(r.Limits, false), p.Limits.Validate(), p.planDisk(pl, r)); err != nil {
		return err
	}
	if n := r.Limits.GetMilliCpu(); n > int64(pl.CPUs)*1000 {
		p.Notes = append(p.Notes, cpusNote(n, pl.CPUs))
	}
	return nil
}

// cpusNote says that a request names more CPUs than the host has. It is no reason to refuse
// it: the same request is made on hosts of many sizes.
func cpusNote(milliCPU int64, have int) string {
	return fmt.Sprintf("limits.milli_cpu: %g CPUs are asked for, and the host has %d: that many can be used", float64(milliCPU)/1000, have)
}

// lower returns the lower of two rates, of which 0 is unbounded.
func lower(rate, most int64) int64 {
	if rate == 0 || most == 0 {
		return max(rate, most)
	}
	return min(rate, most)
}

// Labels returns the labels of the container. None comes from an image: engines act on
// some labels (CVE-2026-53488).
func (p *Sandbox) Labels() map[string]string {
	return map[string]string{
		"caisson.managed": "true",
		"caisson.profile": p.ProfileName,
		"caisson.session": p.Request.Session,
		"caisson.task":    p.Request.Task,
	}
}

var (
	nameForm  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)
	hostForm  = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)
	labelForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)
)

// checkExposed refuses ports on which nothing inside can listen.
func checkExposed(list []uint32) ([]uint16, error) {
	if err := AtMost(len(list), ports.Max, "exposed ports"); err != nil {
		return nil, err
	}
	var exposed []uint16
	var errs []error
	for _, n := range list {
		if n < ports.Lowest || n > 65535 {
			errs = append(errs, Invalid("expose %d: give a port from %d to 65535", n, ports.Lowest))
		}
		exposed = append(exposed, uint16(n))
	}
	return exposed, errors.Join(errs...)
}

// Become gives p the ID of a ready sandbox.
func (p *Sandbox) Become(id string) {
	old := p.ID
	if p.Name == old {
		p.Name = id
	}
	p.Env = Renamed(p.Env, old, id)
	p.ID = id
}

// Renamed returns env with another HOSTNAME. Records keep the old one.
func Renamed(env []string, from, to string) []string {
	env = slices.Clone(env)
	if i := slices.Index(env, "HOSTNAME="+from); i >= 0 {
		env[i] = "HOSTNAME=" + to
	}
	return env
}
