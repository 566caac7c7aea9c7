package pool

import (
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
)

// kind is what cannot be changed in a sandbox that was made: a request takes one
// of its own kind only.
type kind struct {
	profile, seccomp, image, network string
	user                             string
	limits                           settings.Limits
	mountPoint, homes, hostname      string // that no other sandbox has
	build, writable                  bool
	cold                             bool // none is made ahead
}

// kindOf returns the kind of sandbox that p asks for. The other limits can be changed.
func kindOf(p *plan.Sandbox) kind {
	return kind{
		profile: p.ProfileName, seccomp: p.Seccomp.Name, image: p.Image.Digest, network: string(p.Network), user: p.User.String(),
		limits:     settings.Limits(p.Limits).Kind(),
		mountPoint: strings.Join(p.MountPoints(), ""), homes: p.HomesText(), hostname: p.Request.Hostname, build: p.Request.Build, writable: p.WritableRoot,
		cold: p.From != nil && slices.ContainsFunc(p.Mounts, func(m plan.Mount) bool { return m.Cow }), // it is on the disk that a snapshot replaces
	}
}

// canWait reports whether sandboxes like p, of the kind k, can be made ahead: the image is
// root's, since the daemon makes them, and nothing in them is of one request.
func canWait(k kind, p *plan.Sandbox) bool {
	return p.From == nil && p.Image.Owner == 0 && p.Network != netns.ModeBridge && k.hostname == "" && !k.build &&
		!slices.ContainsFunc(p.MountPoints(), isOwn) && p.Profile.Unisolated == nil
}

// isOwn reports whether a mount point is of one request. Those of caches are the same for all.
func isOwn(point string) bool { return !strings.HasPrefix("/"+point, plan.CachesDir+"/") }

// likeOf is what sandboxes are made like of which p takes one: with a disk where p copies on
// write, and the mount points of its caches.
func likeOf(p *plan.Sandbox) *plan.CreateRequest {
	r := p.Request
	limits := settings.KindOf(r.Limits)
	if bytes := p.Limits.DiskBytes; bytes != 0 {
		limits.DiskBytes = &bytes
	}
	return &plan.CreateRequest{Profile: p.ProfileName, Image: p.Image.Name, Rootfs: r.Rootfs, User: r.User, Network: string(p.Network), Limits: limits, Caches: r.Caches}
}
