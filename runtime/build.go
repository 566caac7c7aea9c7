package runtime

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/dockerfile"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// BuildRequest asks for an image that is made of a Dockerfile.
type BuildRequest struct {
	Name       string // of the image
	Dockerfile []byte
	Context    string // image whose folder contextRoot holds the files for COPY; empty: there are none
	Args       map[string]string
	Target     string // stage of the file; empty: the last
	NoCache    bool
	// Sandbox has the profile, limits and network of the sandbox of each RUN. It names
	// nothing else.
	Sandbox plan.CreateRequest
	Timeout *time.Duration // of each RUN; nil: none
}

// contextRoot is the folder of a context's image. What is at the top of an image has a
// meaning, such as dev.
const contextRoot = "context"

// BuildImage makes an image of the caller's by a Dockerfile. All of the file is planned, and
// its images found, before anything runs. An image of the name is replaced at the end, or
// not at all. An image in Context that was sent for one build is removed.
func (m *Manager) BuildImage(ctx context.Context, r BuildRequest, report func(images.BuildEvent)) (done images.Imported, err error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckImages()
	}
	if err == nil {
		err = image.CheckName(r.Name)
	}
	if err == nil && images.OfBuild(r.Name) {
		err = sbxerr.New(sbxerr.Config, "runtime.build", "the name %q is one of those that builds use", r.Name)
	}
	if err != nil {
		return images.Imported{}, err
	}
	b := &build{m: m, grant: g, request: r, report: report}
	defer func() { err = errors.Join(err, b.dropContext(ctx)) }()
	file, err := dockerfile.New(r.Dockerfile, dockerfile.Options{Args: r.Args, Target: r.Target, Image: func(name string) (v1.ImageConfig, error) {
		img, err := m.verifiedImage(m.image(ctx, name))
		return img.Config.Config, err
	}})
	if err != nil {
		return images.Imported{}, err
	}
	b.plan = file
	return b.run(ctx)
}

// build is a build under way.
type build struct {
	m       *Manager
	grant   peer.Grant
	request BuildRequest
	report  func(images.BuildEvent)
	plan    *dockerfile.Plan
	stages  []images.Stored // the image at the end of each stage
	step    int
	steps   int
}

func (b *build) run(ctx context.Context) (images.Imported, error) {
	for _, s := range b.plan.Stages {
		if s.Needed {
			b.steps += 1 + len(s.Steps)
		}
	}
	var last *buildStage
	for _, s := range b.plan.Stages {
		if !s.Needed {
			b.stages = append(b.stages, images.Stored{})
			continue
		}
		var err error
		if last, err = b.stage(ctx, s); err != nil {
			return images.Imported{}, err
		}
		b.stages = append(b.stages, last.img)
	}
	done, err := last.finish(ctx)
	return done, errors.Join(err, b.m.trimCache(ctx, b.grant))
}

// buildStage is one stage of the file, and the image so far.
type buildStage struct {
	*build
	plan  dockerfile.Stage
	img   images.Stored
	layer *image.Stage // adds to img; nil until a step was not cached
}

// stage does all steps of s.
func (b *build) stage(ctx context.Context, s dockerfile.Stage) (_ *buildStage, err error) {
	t := &buildStage{build: b, plan: s}
	b.progress(s.Line, s.Text, false)
	if s.Image == "" {
		t.img = b.stages[s.Base]
	} else if t.img, err = b.m.verifiedImage(b.m.image(ctx, s.Image)); err != nil {
		return nil, err
	}
	for _, step := range s.Steps {
		if err := t.do(ctx, step); err != nil {
			return nil, t.abandon(ctx, sbxerr.Wrap(plan.CodeOf(err), "runtime.build", lineOf(step.Line, err)))
		}
	}
	return t, nil
}

func (t *buildStage) abandon(ctx context.Context, err error) error {
	if t.layer == nil {
		return err
	}
	return t.layer.Abandon(ctx, err)
}

func (b *build) progress(line int, text string, cached bool) {
	b.step++
	b.report(images.BuildEvent{Step: b.step, Steps: b.steps, Line: line, Text: text, Cached: cached})
}

// adder returns what adds layers to the image so far.
func (t *buildStage) adder(ctx context.Context) (*image.Stage, error) {
	if t.layer != nil {
		return t.layer, nil
	}
	limits, err := t.m.importLimits(ctx, t.grant)
	if err != nil {
		return nil, err
	}
	var layers []v1.Descriptor
	for i, d := range t.img.Layers {
		if diff := t.img.Config.RootFS.DiffIDs[i]; diff.String() != d {
			return nil, sbxerr.New(sbxerr.ImageFormat, "runtime.build", "image %q was not stored by caisson: import it", t.img.Name)
		}
		layers = append(layers, v1.Descriptor{MediaType: v1.MediaTypeImageLayer, Digest: digest.Digest(d), Size: t.img.LayerBytes[i]})
	}
	t.layer, err = image.NewStage(limits, t.sink(), layers, t.m.images.OpenBlob)
	return t.layer, err
}

func (b *build) sink() *ownedSink {
	return &ownedSink{Store: b.m.images, grant: b.grant, names: &b.m.naming, named: true}
}

// add stores the layer that write writes as the state after the step of key.
func (t *buildStage) add(ctx context.Context, key string, write func(io.Writer) error) error {
	done, err := t.m.imports.work(ctx)
	if err != nil {
		return err
	}
	defer done()
	layer, err := t.adder(ctx)
	if err != nil {
		return err
	}
	if err := layer.Add(ctx, write); err != nil {
		return err
	}
	if err := failpoint("build/layer"); err != nil {
		return err
	}
	name := images.CachePrefix + key
	if _, err := layer.Commit(ctx, image.Result{Name: name, Kind: image.KindBuildCache}, t.img.Config.Config); err != nil {
		return err
	}
	t.img, err = t.m.images.GetImage(ctx, t.sink().key(name))
	return errors.Join(err, failpoint("build/step"))
}

// finish gives the image its name and configuration.
func (t *buildStage) finish(ctx context.Context) (images.Imported, error) {
	layer, err := t.adder(ctx)
	if err != nil {
		return images.Imported{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	labels := map[string]string{image.LabelReport: t.img.Labels[image.LabelReport]}
	sink := t.sink()
	named, err := image.NewStage(t.m.settings().ImageLimits, sink, layer.Layers(), t.m.images.OpenBlob)
	if err != nil {
		return images.Imported{}, err
	}
	if err := failpoint("build/name"); err != nil {
		return images.Imported{}, err
	}
	result, err := named.Commit(ctx, image.Result{Name: t.request.Name, Kind: image.KindBuild, Created: &now, Labels: labels}, t.plan.Config)
	if err != nil {
		return images.Imported{}, named.Abandon(ctx, err)
	}
	return t.m.imported(ctx, sink, result, nil)
}

// dropContext removes files that were sent for this build.
func (b *build) dropContext(ctx context.Context) error {
	if !strings.HasPrefix(b.request.Context, images.ContextPrefix) {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	return b.m.removeImages(ctx, b.sink().key(b.request.Context))
}
