package templates

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// sweepEvery is the time between two looks for templates that are superseded. One that two
// looks find goes, so that a request that was planned with it can begin.
const sweepEvery = time.Minute

// Start removes superseded templates until Close.
func (s *Service) Start() {
	s.work.Go(func() {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		var old map[string]bool
		for {
			var err error
			if old, err = s.Sweep(s.ctx, old); err != nil && s.ctx.Err() == nil {
				s.log.Warn("remove superseded templates", "err", err)
			}
			select {
			case <-s.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// Sweep removes the templates of old that are still superseded and used by no sandbox. It
// returns those that it leaves for the next look.
func (s *Service) Sweep(ctx context.Context, old map[string]bool) (left map[string]bool, err error) {
	ctx = peer.NewContext(ctx, peer.System)
	list, err := s.images.Templates(ctx)
	if err != nil {
		return old, err
	}
	current, unknown := s.current(ctx)
	left = map[string]bool{}
	var errs []error
	for _, img := range list {
		profile, _ := images.TemplateOf(img.Name)
		if current[img.Name] || unknown[profile] {
			continue
		}
		if !old[img.Name] {
			left[img.Name] = true
			continue
		}
		if err := s.images.Remove(ctx, img.Name); err != nil {
			left[img.Name] = true
			if !errors.Is(err, sbxerr.ImageInUse) {
				errs = append(errs, err)
			}
		}
	}
	profiles := s.fleet.Profiles()
	errs = append(errs, s.prune(func(name string) bool { return profiles[name].Setup != nil }))
	return left, errors.Join(errs...)
}

// current names the templates that profiles need as things are now. Of the unknown profiles
// that cannot be said.
func (s *Service) current(ctx context.Context) (names, unknown map[string]bool) {
	names, unknown = map[string]bool{}, map[string]bool{}
	for name, p := range s.fleet.Profiles() {
		if p.Setup == nil {
			continue
		}
		t, err := s.targetOf(ctx, name, *p.Setup, p.Image)
		if unknown[name] = err != nil; err == nil {
			names[t.image] = true
		}
	}
	return names, unknown
}

// Needed names the templates that profiles need, so that nothing else removes them.
func (s *Service) Needed() (names []string) {
	ctx := peer.NewContext(s.ctx, peer.System)
	current, unknown := s.current(ctx)
	list, err := s.images.Templates(ctx)
	if err != nil { // then nothing is removed either
		return nil
	}
	for _, img := range list {
		if profile, _ := images.TemplateOf(img.Name); current[img.Name] || unknown[profile] {
			names = append(names, img.Name)
		}
	}
	return names
}

// tell tells of a build that ended.
func (s *Service) tell(ctx context.Context, f *flight, made images.Image, a attempt, cause error) error {
	e := events.Event{Type: events.TemplateBuilt, Scope: events.Scope{Host: true}, Data: events.Data{
		Profile: f.profile, Image: f.image, ImageDigest: made.Digest, Duration: events.Duration(a.Took),
	}}
	if cause != nil {
		e.Type = events.TemplateFailed
		e.Data.Tell(cause)
	}
	return s.events.Confirm(ctx, e)
}
