package runtime

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/mount"
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

// plan is a request with every question answered. It is made before anything
// else is, and everything that can be refused by looking is refused here.
type plan struct {
	id      string
	name    string
	request Request

	image       StoredImage
	profileName string
	profile     Profile
	seccomp     seccomp.Profile
	network     netns.Mode

	args []string
	env  []string
	cwd  string
	user user

	limits      Limits
	outputLimit int64
	timeout     time.Duration // 0 is none
	readOnly    bool          // the workspace
}

// planner is what a request is answered with.
type planner struct {
	profiles   map[string]Profile
	workspaces mount.Allowed
	image      func(ref string) (StoredImage, error)
	user       func(img StoredImage, name string) (user, error)
}

// plan answers r, or reports every reason why it cannot be run.
func (pl planner) plan(r Request) (*plan, error) {
	const op = "runtime.plan"
	p := &plan{id: newID(), request: r}
	p.name = p.id
	profileErr := p.planProfile(pl.profiles, r)
	errs := []error{p.planIdentity(r), profileErr, p.planNetwork(r), p.planCommand(r), p.planTime(r), p.planWorkspace(pl.workspaces, r)}
	if profileErr == nil { // which has the defaults of these
		errs = append(errs, p.planLimits(r), p.planImage(pl, r))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, sbxerr.Wrap(codeOf(err), op, err)
	}
	return p, nil
}

// codeOf keeps the code of the first reason that has one.
func codeOf(err error) sbxerr.Code {
	if c := sbxerr.Of(err); c != sbxerr.Unknown {
		return c
	}
	return sbxerr.Config
}

func (p *plan) planIdentity(r Request) error {
	var errs []error
	if r.Name != "" {
		p.name = r.Name
		if !nameForm.MatchString(r.Name) {
			errs = append(errs, invalid("name %q: give 1 to 63 lower-case letters, digits, and _ . - after the first", r.Name))
		}
	}
	if len(r.Labels) > maxLabels {
		errs = append(errs, invalid("%d labels are more than %d", len(r.Labels), maxLabels))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
		v, lower := r.Labels[k], strings.ToLower(k)
		if !nameForm.MatchString(lower) || strings.HasPrefix(lower, "caisson.") {
			errs = append(errs, invalid("label %q: give 1 to 63 letters, digits, and _ . - after the first; caisson. is reserved", k))
		}
		if len(v) > maxLabelBytes || !utf8.ValidString(v) {
			errs = append(errs, invalid("label %q: its value must be at most %d bytes of UTF-8", k, maxLabelBytes))
		}
	}
	return errors.Join(append(errs, checkCallerID("session", r.Session), checkCallerID("task", r.Task))...)
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

func (p *plan) planProfile(profiles map[string]Profile, r Request) error {
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

func (p *plan) planNetwork(r Request) error {
	mode, err := netns.ParseMode(r.Network)
	if err != nil {
		return err
	}
	p.network = mode
	if len(r.Allow) > 0 {
		return sbxerr.WithRemedy(sbxerr.NetworkMode, "runtime.plan",
			fmt.Errorf("egress rules %q cannot be honoured: this version offers the network mode none only", r.Allow),
			"leave --allow away; nothing can leave the sandbox")
	}
	return nil
}

func (p *plan) planCommand(r Request) error {
	var errs []error
	if len(r.Args) == 0 || r.Args[0] == "" {
		errs = append(errs, invalid("no command: give it after --"))
	}
	if r.TTY {
		errs = append(errs, invalid("terminals are not offered yet: leave -t away"))
	}
	for i, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, invalid("argument %d holds a NUL byte", i))
		}
	}
	p.args = r.Args
	return errors.Join(append(errs, checkEnv(r.Env), checkCwd(r.Cwd))...)
}

// checkEnv names the variables only: a value may be a secret.
func checkEnv(env []string) error {
	var errs []error
	for i, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			errs = append(errs, invalid("environment entry %d is not NAME=VALUE", i))
		case name == "":
			errs = append(errs, invalid("environment entry %d has no name", i))
		case strings.ContainsRune(kv, 0):
			errs = append(errs, invalid("environment variable %.40q holds a NUL byte", name))
		}
	}
	return errors.Join(errs...)
}

// checkSize bounds what the command is started with: execve(2) would refuse
// what is much larger, after everything was made.
func (p *plan) checkSize() error {
	size := 0
	for _, s := range slices.Concat(p.args, p.env) {
		size += len(s) + 1
	}
	if size > maxArgsBytes {
		return invalid("arguments and environment take %d bytes, more than %d: pass large input by -i or the workspace", size, maxArgsBytes)
	}
	return nil
}

// checkCwd refuses working directories that could be a descriptor of the host
// (CVE-2024-21626).
func checkCwd(cwd string) error {
	if cwd == "" {
		return nil
	}
	if !path.IsAbs(cwd) || path.Clean(cwd) != cwd || strings.ContainsRune(cwd, 0) {
		return invalid("working directory %q is not a clean absolute path", cwd)
	}
	if cwd == "/proc" || strings.HasPrefix(cwd, "/proc/") {
		return invalid("working directory %q lies in /proc", cwd)
	}
	return nil
}

func (p *plan) planTime(r Request) error {
	var errs []error
	if r.Timeout != nil {
		p.timeout = *r.Timeout
		if p.timeout <= 0 || p.timeout > maxTimeout {
			errs = append(errs, invalid("timeout %s: give more than 0, such as 30s", p.timeout))
		}
	}
	p.outputLimit = DefaultOutputLimit
	if r.OutputLimit != nil {
		p.outputLimit = *r.OutputLimit
	}
	if p.outputLimit < 2 || p.outputLimit > 1<<40 {
		errs = append(errs, sbxerr.New(sbxerr.Limits, "runtime.plan", "output limit %d: give at least 2 bytes, such as 10M", p.outputLimit))
	}
	return errors.Join(errs...)
}

func (p *plan) planWorkspace(allowed mount.Allowed, r Request) error {
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
	return sbxerr.New(sbxerr.Workspace, "runtime.plan", "workspace mode %q is none of rw, ro", mode)
}

func (p *plan) planLimits(r Request) error {
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

// Validate reports every limit that is out of range.
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

func (p *plan) record(now time.Time, detached bool) record {
	r := p.request
	return record{
		Version: recordVersion, ID: p.id, Name: p.name, Image: p.image.Name, ImageDigest: p.image.Digest, ChainID: p.image.ChainID,
		Profile: p.profileName, Args: p.args, CreatedAt: now, Labels: r.Labels, Session: r.Session, Task: r.Task,
		Workspace: r.Workspace, Limits: p.limits, Detached: detached,
	}
}
