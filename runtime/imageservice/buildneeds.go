package imageservice

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// BuildNeeds says what Build would read, or why it would refuse the file. An image that
// is not there counts as one without a configuration.
func (s *Service) BuildNeeds(ctx context.Context, r BuildRequest) (images.BuildNeeds, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckImages)
	if err != nil {
		return images.BuildNeeds{}, err
	}
	names := map[string]bool{}
	b := &build{service: s, grant: g, request: r}
	config := b.configOf(ctx)
	err = b.makePlan(ctx, func(name string) (buildplan.Config, error) {
		names[name] = true
		c, err := config(name)
		if errors.Is(err, sbxerr.ImageNotFound) {
			return buildplan.Config{}, nil
		}
		return c, err
	})
	if err != nil {
		return images.BuildNeeds{}, err
	}
	var needs images.BuildNeeds
	for _, stage := range b.plan.Stages {
		for _, step := range stage.Steps {
			needs.Context = needs.Context || step.ReadsContext()
			for _, name := range step.Images() {
				names[name] = true
			}
		}
	}
	needs.Images = slices.Sorted(maps.Keys(names))
	return needs, nil
}
