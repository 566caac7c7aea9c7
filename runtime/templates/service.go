package templates

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Fleet knows the profiles that have set-ups.
type Fleet interface {
	// Busy counts a call until done is called.
	Busy() (done func())
	// Grant is what the caller in ctx may do.
	Grant(ctx context.Context) (peer.Grant, error)
	// Profiles are those in force.
	Profiles() map[string]plan.Profile
	// StepPolicy is the policy of the network that a build step of r would have.
	StepPolicy(ctx context.Context, r plan.CreateRequest) (netns.Mode, policy.Spec, error)
}

// Images builds, finds and removes images. *imageservice.Service implements it.
type Images interface {
	BuildPlanned(ctx context.Context, r imageservice.Planned, report func(images.BuildEvent)) (images.Imported, error)
	FindOfRoot(ctx context.Context, ref string) (images.Stored, error)
	Templates(ctx context.Context) ([]images.Stored, error)
	Remove(ctx context.Context, name string) error
}

// Service builds, finds and removes templates. All of its methods may be called at the same
// time.
type Service struct {
	fleet    Fleet
	images   Images
	dir      string // of the last attempts
	events   *events.Bus
	log      *slog.Logger
	contents contents

	ctx  context.Context // it ends with Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	flights  map[string]*flight // by the image's name
	failures map[string]failure
}

// NewService returns the Service that keeps logs of set-ups in dir.
func NewService(fleet Fleet, store Images, dir string, bus *events.Bus, log *slog.Logger) *Service {
	s := &Service{fleet: fleet, images: store, dir: dir, events: bus, log: log, flights: map[string]*flight{}, failures: map[string]failure{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends all builds, and returns when they have ended.
func (s *Service) Close() {
	s.stop()
	s.work.Wait()
}

// The states of a template.
const (
	StateReady    = "ready"
	StateBuilding = "building"
	StateFailed   = "failed"
	StateAbsent   = "absent"
)

// Info is the template of a profile.
type Info struct {
	Profile string
	Base    string       // name of the image that it begins with
	State   string       // one of the States
	Image   images.Image // whose name is that of the template; of a StateReady
	Key     string       // of all that goes into it
	BuiltAt time.Time    // end of the last attempt; zero: there was none
	Took    time.Duration
	Error   string // why the last attempt failed, or none can be made
	Log     string // of the last attempt
}

// target is a template that can be built.
type target struct {
	profile, key, image string
	setup               plan.Setup
	baseName            string
	base                images.Stored
}

// targetOf says which template a profile needs as things are now.
func (s *Service) targetOf(ctx context.Context, profile string, setup plan.Setup, base string) (t target, err error) {
	ctx = peer.NewContext(ctx, peer.System)
	t = target{profile: profile, setup: setup, baseName: base}
	if t.base, err = s.images.FindOfRoot(ctx, base); err != nil {
		return t, err
	}
	mode, network, err := s.fleet.StepPolicy(ctx, imageservice.StepRequest(stepRequest(setup)))
	if err != nil {
		return t, err
	}
	steps := s.fleet.Profiles()[cmp.Or(setup.Profile, plan.StepProfile)]
	in := Inputs{Base: t.base.Digest, Run: setup.Run, Seccomp: steps.Seccomp, Env: steps.Env, Mode: string(mode), Policy: network}
	for _, c := range setup.Copy {
		content, err := s.contents.digest(ctx, c.From)
		if err != nil {
			return t, err
		}
		in.Copy = append(in.Copy, File{Content: content, To: c.To})
	}
	t.key = in.Key()
	t.image = images.TemplateName(profile, t.key)
	return t, nil
}

// Image returns the template of a profile, for a sandbox of the caller's that is to begin with
// it. Where there is none it is built.
func (s *Service) Image(ctx context.Context, profile string) (images.Stored, error) {
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = g.CheckProfile(profile)
	}
	if err != nil {
		return images.Stored{}, err
	}
	p := s.fleet.Profiles()[profile]
	if p.Setup == nil { // it was taken away meanwhile
		return s.images.FindOfRoot(ctx, p.Image)
	}
	t, err := s.targetOf(ctx, profile, *p.Setup, p.Image)
	if err != nil {
		return images.Stored{}, err
	}
	if img, err := s.ready(ctx, t); !absent(err) {
		return img, err
	}
	if err := s.lately(t); err != nil {
		return images.Stored{}, err
	}
	if err := s.build(ctx, t, false, nil); err != nil {
		return images.Stored{}, err
	}
	return s.ready(ctx, t)
}

// ready finds a template that is built. One that is damaged counts as absent.
func (s *Service) ready(ctx context.Context, t target) (images.Stored, error) {
	return s.images.FindOfRoot(ctx, t.image)
}

func absent(err error) bool {
	return errors.Is(err, sbxerr.ImageNotFound) || errors.Is(err, sbxerr.ImageDamaged)
}

// lately is why the build of t failed a while ago.
func (s *Service) lately(t target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failures[t.image]
	if time.Since(f.at) >= retryAfter {
		delete(s.failures, t.image)
		return nil
	}
	return f.err
}

// Build builds the template of a profile, unless it is there and noCache is false.
func (s *Service) Build(ctx context.Context, profile string, noCache bool, report func(images.BuildEvent)) (Info, error) {
	defer s.fleet.Busy()()
	p, err := s.admin(ctx, profile)
	if err != nil {
		return Info{}, err
	}
	s.contents.forget()
	t, err := s.targetOf(ctx, profile, *p.Setup, p.Image)
	if err != nil {
		return Info{}, err
	}
	if _, err := s.ready(ctx, t); noCache || absent(err) {
		if err := s.build(ctx, t, noCache, report); err != nil {
			return Info{}, err
		}
	} else if err != nil {
		return Info{}, err
	}
	return s.info(ctx, profile, p)
}

// admin finds a profile with a set-up, for root.
func (s *Service) admin(ctx context.Context, profile string) (plan.Profile, error) {
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = g.CheckAdmin()
	}
	if err != nil {
		return plan.Profile{}, err
	}
	return s.find(profile)
}

func (s *Service) find(profile string) (plan.Profile, error) {
	p, err := plan.LookupProfile(s.fleet.Profiles(), profile)
	if err == nil && p.Setup == nil {
		err = sbxerr.New(sbxerr.TemplateNotFound, "templates.find", "profile %q has no set-up", profile)
	}
	return p, err
}

// List returns the templates of the profiles that the caller may use, by name, without logs.
func (s *Service) List(ctx context.Context) ([]Info, error) {
	defer s.fleet.Busy()()
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = g.CheckHost()
	}
	if err != nil {
		return nil, err
	}
	list := []Info{}
	all := s.fleet.Profiles()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].Setup == nil || g.CheckProfile(name) != nil {
			continue
		}
		i, err := s.info(ctx, name, all[name])
		if err != nil {
			return nil, err
		}
		i.Log = ""
		list = append(list, i)
	}
	return list, nil
}

// Inspect returns one template, with the log of its last build.
func (s *Service) Inspect(ctx context.Context, profile string) (Info, error) {
	defer s.fleet.Busy()()
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = cmp.Or(g.CheckHost(), g.CheckProfile(profile))
	}
	if err != nil {
		return Info{}, err
	}
	p, err := s.find(profile)
	if err != nil {
		return Info{}, err
	}
	return s.info(ctx, profile, p)
}

// info looks at the template of a profile. One that cannot be built has failed.
func (s *Service) info(ctx context.Context, profile string, p plan.Profile) (Info, error) {
	i := Info{Profile: profile, Base: p.Image, State: StateAbsent}
	last, err := s.lastAttempt(profile)
	if err != nil {
		return i, err
	}
	i.BuiltAt, i.Took, i.Log = last.Ended, last.Took, last.Log
	t, err := s.targetOf(ctx, profile, *p.Setup, p.Image)
	if err != nil {
		i.State, i.Error = StateFailed, err.Error()
		return i, nil
	}
	i.Key = t.key
	img, err := s.ready(ctx, t)
	switch {
	case err == nil:
		i.State, i.Image = StateReady, img.Image
	case !absent(err):
		return i, err
	case last.Error != "" && last.Key == t.key:
		i.State, i.Error = StateFailed, last.Error
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights[t.image] != nil {
		i.State, i.Error = StateBuilding, ""
	}
	return i, nil
}

// Remove removes the templates of a profile that no sandbox uses. The next request builds one.
func (s *Service) Remove(ctx context.Context, profile string) error {
	defer s.fleet.Busy()()
	if _, err := s.admin(ctx, profile); err != nil {
		return err
	}
	list, err := s.images.Templates(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, img := range list {
		if of, _ := images.TemplateOf(img.Name); of == profile {
			errs = append(errs, s.images.Remove(ctx, img.Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.failures, func(name string, _ failure) bool {
		of, _ := images.TemplateOf(name)
		return of == profile
	})
	return s.prune(func(name string) bool { return name != profile })
}
