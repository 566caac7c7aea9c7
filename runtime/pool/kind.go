package pool

import (
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
	build, ownWorkspace, writable    bool
	cow                              bool // its workspace is copy-on-write: none is made ahead
	from                             bool // it begins with a snapshot: none is made ahead
}

// kindOf returns the kind of sandbox that p asks for. The other limits can be changed.
func kindOf(p *plan.Sandbox) kind {
	return kind{
		profile: p.ProfileName, seccomp: p.Seccomp.Name, image: p.Image.Digest, network: string(p.Network), user: p.User.String(),
		limits:     settings.Limits(p.Limits).Kind(),
		mountPoint: strings.Join(p.MountPoints(), ""), homes: p.HomesText(), hostname: p.Request.Hostname, build: p.Request.Build, ownWorkspace: p.OwnWorkspace, writable: p.WritableRoot, from: p.From != nil,
		cow: p.Request.Workspace.Cow(),
	}
}

// canWait reports whether sandboxes like p, of the kind k, can be made ahead: the image is
// root's, since the daemon makes them, and nothing in them is of one request.
func canWait(k kind, p *plan.Sandbox) bool {
	return p.From == nil && !k.cow && p.Image.Owner == 0 && p.Network != netns.ModeBridge && k.mountPoint == "" && k.hostname == "" && !k.build &&
		!hidden(k, p) && p.Profile.Unisolated == nil
}

// hidden reports whether a mount of the request hides the workspace that a sandbox made ahead
// would have on its disk.
func hidden(k kind, p *plan.Sandbox) bool { return p.Limits.DiskBytes != 0 && !k.ownWorkspace }
