package runtime

import (
	"context"
	"io"
	"slices"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/pool"
)

// Images returns the service of the images.
func (m *Manager) Images() *imageservice.Service { return m.images }

// imageFleet shows the fleet to the service of images.
type imageFleet struct{ *Manager }

// Grant implements imageservice.Fleet.
func (f imageFleet) Grant(ctx context.Context) (peer.Grant, error) { return f.grant(ctx) }

// Settings implements imageservice.Fleet.
func (f imageFleet) Settings() imageservice.Settings { return f.settings().Images }

// Configured implements imageservice.Fleet. Profiles, pools and languages name images.
func (f imageFleet) Configured() []string {
	var names []string
	for _, p := range f.settings().Profiles {
		names = append(names, p.Image)
	}
	for _, p := range f.opts.Pools {
		names = append(names, p.Image)
	}
	for _, name := range f.settings().Languages {
		names = append(names, name)
	}
	names = append(names, f.templates.Needed()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// UsersOf implements imageservice.Fleet.
func (f imageFleet) UsersOf(g peer.Grant, img images.Stored) (users []string, going []<-chan struct{}) {
	users, going = f.usersOf(g, func(r record) bool { return r.Image == img.Key() && r.ImageDigest == img.Digest })
	for _, s := range f.snapshots.NeedingImages() {
		if s.Image == img.Key() && s.ImageDigest == img.Digest && g.Sees(s.Owner, "") {
			name := s.Name
			if s.Owner != g.Caller().UID {
				name = s.Key.String()
			}
			users = append(users, "snapshot "+name)
		}
	}
	return users, going
}

// Needed implements imageservice.Fleet. A sandbox that has exited needs its output alone, and
// one that waits in a pool goes with its image.
func (f imageFleet) Needed() (keys, chains []string) {
	for _, s := range f.all() {
		r := s.kept()
		if s.info().State != StateExited && !r.Pooled {
			keys = append(keys, r.Image)
		}
		if !s.retired() {
			chains = append(chains, r.ChainID)
		}
	}
	for _, s := range f.snapshots.NeedingImages() {
		keys, chains = append(keys, s.Image), append(chains, s.ChainID)
	}
	return keys, chains
}

// StepPolicy implements imageservice.Fleet.
func (f imageFleet) StepPolicy(ctx context.Context, r plan.CreateRequest) (netns.Mode, policy.Spec, error) {
	return f.specFor(ctx, PolicyQuery{Profile: r.Profile, Network: r.Network, Allow: r.Allow, Deny: r.Deny})
}

// RunStep implements imageservice.Fleet.
func (f imageFleet) RunStep(ctx context.Context, r plan.Request, made func(imageservice.StepSandbox) error, stdout, stderr io.Writer) (imageservice.StepResult, error) {
	s, e, err := f.startMain(ctx, r, false, func(s *sandbox) error {
		have := s.kept()
		return made(imageservice.StepSandbox{
			Upper: mount.UpperDir(f.paths.upper(s.id)), HostIDBase: have.HostIDBase, User: have.User, Limits: have.Limits, Mounts: have.Mounts,
		})
	})
	if err != nil {
		return imageservice.StepResult{}, err
	}
	result, err := f.attendMain(ctx, s, e, IO{Stdout: stdout, Stderr: stderr})
	if err != nil {
		return imageservice.StepResult{}, err
	}
	step := imageservice.StepResult{
		ExitCode: result.ExitCode, TimedOut: result.TimedOut, OOMKilled: result.OOMKilled, PIDsLimitHit: result.PIDsLimitHit,
		FullTmpfs: result.FullTmpfs, Network: result.Network,
	}
	if result.Reason != ReasonExited {
		step.Reason = string(result.Reason)
	}
	for _, refusal := range result.Refusals {
		step.Refusals = append(step.Refusals, imageservice.Refusal{Name: refusal.Name, Port: refusal.Port, Needs: refusal.Needs})
	}
	return step, nil
}

// usersOf names the sandboxes that live and use something, as far as g may know of them. The
// sandboxes that are being removed are in going, by what is closed when they are gone. One
// that waits in a pool is removed.
func (m *Manager) usersOf(g peer.Grant, uses func(record) bool) (users []string, going []<-chan struct{}) {
	for _, s := range m.all() {
		switch r, state := s.kept(), s.info().State; {
		case !uses(r) || state == StateExited:
		case state == StateRemoving || state == StateStopping:
			going = append(going, s.gone)
		case r.Pooled:
			s.end(pool.ErrOutdated)
			going = append(going, s.gone)
		case s.identity().seenBy(g):
			users = append(users, r.Name)
		default:
			users = append(users, "a sandbox of another user")
		}
	}
	slices.Sort(users)
	return slices.Compact(users), going
}
