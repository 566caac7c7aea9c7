package templates_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/templates"
)

// fake is a fleet of one profile, and its images. It builds when it is told to.
type fake struct {
	mu      sync.Mutex
	profile plan.Profile
	stored  map[string]images.Stored
	used    map[string]bool
	builds  int
	build   func(context.Context) error
}

func (f *fake) Busy() func() { return func() {} }

func (f *fake) Grant(ctx context.Context) (peer.Grant, error) {
	c, err := peer.Require(ctx)
	if err != nil {
		return peer.Grant{}, err
	}
	return peer.Policy{}.Grant(c)
}

func (f *fake) Profiles() map[string]plan.Profile {
	f.mu.Lock()
	defer f.mu.Unlock()
	return map[string]plan.Profile{"py": f.profile}
}

func (f *fake) StepPolicy(context.Context, plan.CreateRequest) (netns.Mode, policy.Spec, error) {
	return netns.ModeNone, policy.Spec{}, nil
}

func (f *fake) BuildPlanned(ctx context.Context, r imageservice.Planned, report func(images.BuildEvent)) (images.Imported, error) {
	report(images.BuildEvent{Step: 1, Steps: 1, Text: "a step"})
	err := f.build(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.builds++
	if err == nil {
		f.stored[r.Name] = images.Stored{Image: images.Image{Name: r.Name}}
	}
	return images.Imported{Image: f.stored[r.Name].Image}, err
}

func (f *fake) FindOfRoot(_ context.Context, ref string) (images.Stored, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	img, ok := f.stored[ref]
	if !ok {
		return img, sbxerr.New(sbxerr.ImageNotFound, "fake.find", "no image %q", ref)
	}
	return img, nil
}

func (f *fake) Templates(context.Context) (list []images.Stored, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, img := range f.stored {
		if _, ok := images.TemplateOf(name); ok {
			list = append(list, img)
		}
	}
	return list, nil
}

func (f *fake) Remove(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used[name] {
		return sbxerr.New(sbxerr.ImageInUse, "fake.remove", "image %q is needed", name)
	}
	delete(f.stored, name)
	return nil
}

// run changes the set-up.
func (f *fake) run(script string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.profile = plan.Profile{Image: "base", Setup: &plan.Setup{Run: []string{script}}}
}

func newService(t *testing.T, build func(context.Context) error) (*fake, *templates.Service, context.Context) {
	t.Helper()
	f := &fake{stored: map[string]images.Stored{"base": {Image: images.Image{Name: "base", Digest: "sha256:1"}}}, used: map[string]bool{}, build: build}
	f.run("one")
	s := templates.NewService(f, f, t.TempDir(), nil, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	return f, s, peer.NewContext(t.Context(), peer.System)
}

// All who need a template wait for one build. One who leaves leaves the others waiting, and the
// last one ends the build.
func TestOneBuildForAll(t *testing.T) {
	begun, release := make(chan struct{}, 9), make(chan struct{})
	f, s, ctx := newService(t, func(ctx context.Context) error {
		begun <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	hasty, leave := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() { _, err := s.Image(hasty, "py"); left <- err }()
	<-begun
	leave()
	if err := <-left; sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("who left got %v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if img, err := s.Image(ctx, "py"); err != nil || img.Name == "" {
				t.Errorf("%q, %v", img.Name, err)
			}
		})
	}
	<-begun // the first build has ended, since nobody waited
	close(release)
	all.Wait()
	if f.builds != 2 {
		t.Errorf("%d builds, want one that nobody waited for and one for all", f.builds)
	}
}

// Who needs a template whose set-up failed gets the same answer for a while, without a build,
// unless the inputs change.
func TestFailureIsRemembered(t *testing.T) {
	broken := errors.New("no such package")
	f, s, ctx := newService(t, func(context.Context) error { return broken })
	for range 3 {
		if _, err := s.Image(ctx, "py"); !errors.Is(err, sbxerr.TemplateFailed) || !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
	if i, err := s.Inspect(ctx, "py"); err != nil || i.State != templates.StateFailed || i.Log != "[1/1] a step\n" || f.builds != 1 {
		t.Errorf("%+v, %v, %d builds", i, err, f.builds)
	}
	f.build = func(context.Context) error { return nil }
	if _, err := s.Image(ctx, "py"); err == nil {
		t.Error("it was built again at once")
	}
	f.run("two")
	if _, err := s.Image(ctx, "py"); err != nil {
		t.Errorf("of other inputs: %v", err)
	}
	f.run("one")
	if _, err := s.Build(ctx, "py", false, nil); err != nil {
		t.Errorf("built by root: %v", err)
	}
}

// A superseded template goes when two looks found it unused.
func TestSweep(t *testing.T) {
	f, s, ctx := newService(t, func(context.Context) error { return nil })
	first, err := s.Image(ctx, "py")
	if err != nil {
		t.Fatal(err)
	}
	f.run("two")
	second, err := s.Image(ctx, "py")
	if err != nil || second.Name == first.Name {
		t.Fatalf("%q and %q, %v", first.Name, second.Name, err)
	}
	f.used[first.Name] = true
	var old map[string]bool
	for look, stays := range []bool{true, true, true, false} {
		if look == 3 {
			f.used[first.Name] = false
		}
		if old, err = s.Sweep(ctx, old); err != nil {
			t.Fatal(err)
		}
		if _, there := f.stored[first.Name]; there != stays {
			t.Errorf("after look %d the superseded one is there: %v", look, there)
		}
	}
	if _, there := f.stored[second.Name]; !there {
		t.Error("the needed one was removed")
	}
}
