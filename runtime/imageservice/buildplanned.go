package imageservice

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Planned asks for an image that is made by a plan of the daemon's own.
type Planned struct {
	Name    string
	Plan    *buildplan.Plan
	Files   *os.Root           // of the host, for copies without another source
	Sandbox plan.CreateRequest // profile and network of each command, as in BuildRequest
	Salt    string             // steps of another one are not taken from the cache
	NoCache bool
}

// BuildPlanned makes an image of root's. One of the name is replaced at the end, or not at all.
func (s *Service) BuildPlanned(ctx context.Context, r Planned, report func(images.BuildEvent)) (images.Imported, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckAdmin)
	if err == nil {
		err = image.CheckName(r.Name)
	}
	if err != nil {
		return images.Imported{}, err
	}
	b := &build{
		service: s, grant: g, report: report, plan: r.Plan, files: r.Files, salt: r.Salt,
		request: BuildRequest{Name: r.Name, NoCache: r.NoCache, Sandbox: r.Sandbox},
	}
	return b.run(ctx)
}

// Templates lists the templates that there are, those of all profiles.
func (s *Service) Templates(ctx context.Context) (list []images.Stored, err error) {
	all, err := s.store.ListImages(ctx)
	for _, i := range all {
		if _, ok := images.TemplateOf(i.Name); ok && i.Owner == 0 {
			list = append(list, i)
		}
	}
	return list, err
}
