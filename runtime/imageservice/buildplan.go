package imageservice

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/platforms"

	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// maxAsked bounds how many images a file may begin with: more than it has instructions.
const maxAsked = 1024

// makePlan has the file planned by a process without rights. What that says is checked.
func (b *build) makePlan(ctx context.Context, config func(string) (buildplan.Config, error)) error {
	secrets := slices.Collect(maps.Keys(b.request.Secrets))
	p, err := b.service.options.Program.Start(ctx, imageproc.Job{
		Kind: buildplan.Kind, What: "plan the Dockerfile", Op: "images.build",
		Request: buildplan.Request{
			File: b.request.Dockerfile, Args: b.request.Args, Target: b.request.Target, Secrets: secrets, Platform: platforms.DefaultSpec(),
		},
	})
	if err != nil {
		return err
	}
	defer p.Close()
	for range maxAsked {
		kind, body, err := p.Next(buildplan.MaxMessage)
		switch {
		case err != nil:
			return err
		case kind == buildplan.MessagePlan:
			var w buildplan.Wire
			if err := p.Decode(body, &w); err != nil {
				return err
			}
			if b.plan, err = w.Unpack(secrets); err != nil {
				return p.Broken(err)
			}
			return b.checkDownloads(ctx)
		case kind != buildplan.MessageImage || len(body) > buildplan.MaxName:
			return p.Broken(fmt.Errorf("a message %.40q of %d bytes", kind, len(body)))
		}
		var name string
		if err := p.Decode(body, &name); err != nil {
			return err
		}
		if err := p.Send(buildplan.MessageImage, answer(config(name))); err != nil {
			return p.Failed(err)
		}
	}
	return p.Broken(fmt.Errorf("it asks for more than %d images", maxAsked))
}

func answer(c buildplan.Config, err error) buildplan.Answer {
	if err == nil {
		return buildplan.Answer{Config: c}
	}
	f := imageproc.FailureOf(err)
	return buildplan.Answer{Config: c, Failure: &f}
}
