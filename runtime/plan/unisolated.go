package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// HostUser is the user of the host as whom commands without isolation run.
type HostUser struct {
	UID, GID uint32 // the GID is the primary one; there are no other groups
	Name     string
	Home     string
}

// HostNetwork is the network mode of a sandbox without isolation: it is in the host's network
// namespace. No request can ask for it.
const HostNetwork netns.Mode = "host"

// The values of isolation.
const (
	IsolationSandbox = "sandbox"
	IsolationNone    = "none"
)

// UnisolatedWarning comes with every result of a sandbox without isolation.
const UnisolatedWarning = "isolation none: commands run as a user of the host, with the host's files and network"

// Isolation returns IsolationNone or IsolationSandbox.
func (p Profile) Isolation() string {
	if p.Unisolated != nil {
		return IsolationNone
	}
	return IsolationSandbox
}

// planUnisolated plans a sandbox without isolation.
func (p *Sandbox) planUnisolated(pl Planner, r CreateRequest) error {
	errs := []error{p.planIdentity(r), checkEnv(r.Env), p.planLifetime(r), r.checkUnisolated(), p.planHostWorkspace(pl.Workspaces, r), p.planLimits(pl, r)}
	u := p.Profile.Unisolated
	p.Network = HostNetwork
	p.User = User{UID: u.UID, GID: u.GID}
	p.Env = image.MergeEnv([]string{"PATH=" + DefaultPath, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name}, p.Profile.Env, r.Env)
	p.Notes = append(p.Notes, UnisolatedWarning)
	return errors.Join(append(errs, checkSize(nil, p.Env))...)
}

// planHostWorkspace makes the workspace the working directory. It is not mounted: a command
// finds it at its own path.
func (p *Sandbox) planHostWorkspace(allowed mount.Allowed, r CreateRequest) error {
	p.Cwd = "/"
	w := r.Workspace
	if w == nil {
		return nil
	}
	own := *w
	own.Path = w.Dir
	p.Request.Workspace, p.Cwd = &own, w.Dir
	return allowed.Check(w.Dir)
}

// checkUnisolated refuses settings that would not be enforced.
func (r CreateRequest) checkUnisolated() error {
	w := cmp.Or(r.Workspace, &WorkspaceRequest{})
	var errs []error
	for i := range settings.Table {
		if row := &settings.Table[i]; !row.Unisolated && row.In(r.Limits) != nil {
			errs = append(errs, NotEnforced(row.Name))
		}
	}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"image", r.Image != ""}, {"user", r.User != ""}, {"build", r.Build}, {"pool", r.Pooled}, {"nested", r.Nested != nil},
		{"network", r.Network != ""}, {"allow", len(r.Allow) > 0}, {"deny", len(r.Deny) > 0}, {"allow-ech", r.AllowECH}, {"dns", len(r.DNS) > 0}, {"route", len(r.Routes) > 0}, {"hostname", r.Hostname != ""}, {"rootfs", r.Rootfs != ""}, {"from", r.From != ""}, {"cache", len(r.Caches) > 0}, {"snapshot-on-end", r.SnapshotOnEnd != ""},
		{"publish", len(r.Publish) > 0}, {"expose", len(r.Expose) > 0}, {"link", len(r.Links) > 0},
		{"mount", len(r.Mounts) > 0},
		{"workspace mode " + sbxerr.Clip(w.Mode), w.Mode != "" && w.Mode != "rw"},
		{"workspace path " + sbxerr.Clip(w.Path), w.Path != "" && w.Path != w.Dir},
	} {
		if f.given {
			errs = append(errs, NotEnforced(f.name))
		}
	}
	return errors.Join(errs...)
}

// NotEnforced refuses a setting of a sandbox without isolation.
func NotEnforced(setting string) error {
	return sbxerr.New(sbxerr.Unisolated, "runtime.plan", "%s: it cannot be enforced, since the profile has isolation none", setting)
}

// unisolatedSpec is Spec without isolation.
func (p *Sandbox) unisolatedSpec(c oci.Config, h Host, at Places) (*specs.Spec, []string, error) {
	c.Process.Args = []string{filepath.Join(at.Base, initproto.BinaryName)}
	c.Process.Env = append(c.Process.Env, initproto.SocketEnv+"="+filepath.Join(at.Base, initproto.SocketName))
	rlimits, warnings := oci.ClampRlimits(oci.UnisolatedRlimits(p.rlimits(), h.Rlimits), h.Rlimits)
	c.Rlimits = rlimits
	spec, err := oci.BuildUnisolated(oci.Unisolated{Config: c, InitPoint: at.Base})
	if err != nil {
		return nil, nil, err
	}
	return spec, warnings, sbxerr.Wrap(sbxerr.Internal, "runtime.spec", oci.VerifyUnisolated(spec))
}

// Of returns d with the bounds of profile p. Without isolation only /dev/shm is a tmpfs, for
// files that must not outlive the sandbox.
func (d Defaults) Of(p Profile) Defaults {
	d.MaxTimeout, d.Unisolated = p.Timeout, p.Unisolated != nil
	if d.Unisolated {
		d.Tmpfs, d.Binds = nil, []string{"/tmp", "/var/tmp", "/home"}
	}
	return d
}

// check refuses settings that a sandbox of these defaults cannot give to r.
func (d Defaults) check(r ExecRequest) error {
	if t := r.Timeout; t != nil && d.MaxTimeout > 0 && *t > d.MaxTimeout {
		return sbxerr.WithRemedy(sbxerr.Limits, "runtime.plan", fmt.Errorf("timeout %s is above %s, the profile's", *t, d.MaxTimeout),
			"ask for less, or raise timeout of the profile in the daemon's configuration")
	}
	if d.Unisolated && r.User != "" {
		return NotEnforced("user")
	}
	return nil
}
