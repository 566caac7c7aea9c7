package servertest

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/templates"
)

// templateFake implements server.Templates.
type templateFake struct{ *Fake }

func (f templateFake) List(context.Context) ([]templates.Info, error) { return f.Templates, nil }

func (f templateFake) Inspect(_ context.Context, profile string) (templates.Info, error) {
	i := slices.IndexFunc(f.Templates, func(t templates.Info) bool { return t.Profile == profile })
	if i < 0 {
		return templates.Info{}, sbxerr.New(sbxerr.TemplateNotFound, "fake.find", "profile %q has no set-up", profile)
	}
	return f.Templates[i], nil
}

func (f templateFake) Build(ctx context.Context, profile string, _ bool, report func(images.BuildEvent)) (templates.Info, error) {
	t, err := f.Inspect(ctx, profile)
	if err == nil {
		report(images.BuildEvent{Step: 2, Steps: 2, Text: "setup.run[0]: pip install requests"})
		report(images.BuildEvent{Step: 2, Steps: 2, Output: []byte("Successfully installed\n")})
	}
	return t, err
}

func (f templateFake) Remove(ctx context.Context, profile string) error {
	_, err := f.Inspect(ctx, profile)
	return err
}
