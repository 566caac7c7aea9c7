package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/seccomp"
)

// Profile is a named set of defaults. A request overrides them field by field.
type Profile struct {
	Image   string
	Seccomp string // name of a seccomp profile
	User    string
	Env     []string
	Limits  Limits // a TmpfsBytes of 0 follows from the memory: see tmpfsFor
	Network Network
	Alerts  Alerts
	Mounts  []MountRequest `json:",omitempty"` // of each sandbox, with the rights of who asks for it
	// NestedEnter lets a sandbox run commands in the sandboxes that it made, and use their
	// files. Otherwise it gets their state, result and output.
	NestedEnter bool
	// NestedDepth is how many generations a sandbox may have below it; 1 is children without
	// children.
	NestedDepth int `json:",omitempty"`
	// Timeout is the most time of one command, and that of one that asks for none; 0 is none.
	Timeout time.Duration `json:",omitempty"`
	// IdleTimeout and OnIdle are those of requests that name none.
	IdleTimeout time.Duration `json:",omitempty"`
	OnIdle      string        `json:",omitempty"`
	Caches      []string      `json:",omitempty"` // of sandboxes that name none
	// MergeCaches has what the command of a run wrote to caches go into them if it succeeded.
	MergeCaches bool   `json:",omitempty"`
	Rootfs      string `json:",omitempty"` // "ro" or "rw"; empty is ro
	RootUser    string `json:",omitempty"` // who root may be: RootNone, RootPlain or RootSetup
	Setup       *Setup `json:",omitempty"` // what makes its template; nil: it has none
	// Unisolated runs commands as a user of the host, without isolation. Nil has isolation.
	Unisolated *HostUser `json:",omitempty"`
}

// Validate reports every reason why no request could run with p as it is.
func (p Profile) Validate() error {
	_, err := seccomp.Lookup(p.Seccomp)
	limits := p.Limits
	if limits.TmpfsBytes == 0 {
		limits.TmpfsBytes = tmpfsFor(limits.MemoryBytes)
	}
	if p.NestedDepth < 1 || p.NestedDepth > maxNestedDepth {
		err = errors.Join(err, fmt.Errorf("nested depth %d: give 1 to %d", p.NestedDepth, maxNestedDepth))
	}
	if p.IdleTimeout < 0 || p.IdleTimeout > MaxTimeout {
		err = errors.Join(err, fmt.Errorf("idle_timeout %s: give %s, or 0 for never", p.IdleTimeout, AtMostTimeout))
	}
	if p.OnIdle != "" {
		err = errors.Join(err, CheckIdle(p.OnIdle, p.IdleTimeout))
	}
	switch {
	case !slices.Contains([]string{RootNone, RootPlain, RootSetup}, p.RootUser):
		err = errors.Join(err, fmt.Errorf("root_user: %q is none of plain, setup", p.RootUser))
	case p.RootUser == RootSetup && p.Seccomp != setupSeccomp:
		err = errors.Join(err, fmt.Errorf("root_user: setup needs seccomp: %s, since %s refuses modes that packages have", setupSeccomp, p.Seccomp))
	}
	return errors.Join(err, checkRootfs(p.Rootfs), limits.Validate())
}

// Who root may be inside.
const (
	RootNone  = ""
	RootPlain = "plain" // without capabilities
	RootSetup = "setup" // with those of [oci.SetupCapabilities]
)

// setupSeccomp is the seccomp profile under which package managers can give files the modes
// that they have.
const setupSeccomp = "compat"

// maxNestedDepth bounds the generations below a sandbox.
const maxNestedDepth = 4

// DefaultProfile is the profile of a request that names none.
const DefaultProfile = "strict"

// DefaultLimits bound a sandbox where neither request nor profile does.
func DefaultLimits() Limits {
	l := Limits(settings.Defaults())
	l.TmpfsBytes = tmpfsFor(l.MemoryBytes)
	l.ShmBytes = l.TmpfsBytes
	return l
}

// tmpfsFor is the default size of each tmpfs: half the memory, as Linux has it. Files in a
// tmpfs count as memory. A full one is an error that programs know (ENOSPC), and the other
// half is still there for them; a tmpfs as large as the memory would get them killed.
func tmpfsFor(memory int64) int64 { return memory / 2 }

// DevProfile is the profile in which an agent installs what it needs: root inside, with a root
// file system that it can write.
const DevProfile = "dev"

// devMemory is the memory of a sandbox of DevProfile: compilers and package managers take more
// than commands do.
const devMemory = 2 << 30

// BuiltinProfiles are the profiles of every daemon: one for each seccomp
// profile, under its name, and DevProfile.
func BuiltinProfiles() map[string]Profile {
	profiles := map[string]Profile{}
	for _, name := range seccomp.Names() {
		profiles[name] = Profile{Image: "base", Seccomp: name, User: "1000:1000", Limits: Limits(settings.Defaults()), NestedDepth: 1}
	}
	dev := profiles[setupSeccomp]
	dev.User, dev.Rootfs, dev.RootUser, dev.Limits.MemoryBytes = "root", rootfsRW, RootSetup, devMemory
	profiles[DevProfile] = dev
	return profiles
}

// LookupProfile finds a profile; the empty name is [DefaultProfile]. An unknown name is
// refused with the nearest one.
func LookupProfile(profiles map[string]Profile, name string) (Profile, error) {
	if name == "" {
		name = DefaultProfile
	}
	p, ok := profiles[name]
	if ok {
		return p, nil
	}
	names := slices.Sorted(maps.Keys(profiles))
	msg := fmt.Sprintf("no profile %q; there are %s", sbxerr.Clip(name), strings.Join(names, ", "))
	if near := sbxerr.Nearest(name, names); near != "" {
		msg = fmt.Sprintf("no profile %q, did you mean %q?", name, near)
	}
	return Profile{}, sbxerr.New(sbxerr.Profile, "runtime.plan", "%s", msg)
}
