package imageservice

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/runtime/failpoint"
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
	Timeout *time.Duration    // of each RUN; nil: none
	Secrets map[string][]byte // files for commands that ask for them, by id
}

// contextRoot is the folder of a context's image. What is at the top of an image has a
// meaning, such as dev.
const contextRoot = "context"

// Build makes an image of the caller's by a Dockerfile. All of the file is planned, and
// its images found, before anything runs. An image of the name is replaced at the end, or
// not at all. An image in Context that was sent for one build is removed.
func (s *Service) Build(ctx context.Context, r BuildRequest, report func(images.BuildEvent)) (done images.Imported, err error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckImages)
	if err == nil {
		err = image.CheckName(r.Name)
	}
	if _, isTemplate := images.TemplateOf(r.Name); err == nil && (isTemplate || images.OfBuild(r.Name)) {
		err = sbxerr.New(sbxerr.Config, "images.build", "the name %q is one of those that builds use", r.Name)
	}
	if err != nil {
		return images.Imported{}, err
	}
	b := &build{service: s, grant: g, request: r, report: report}
	defer func() { err = errors.Join(err, b.dropContext(ctx)) }()
	if err := b.makePlan(ctx, b.configOf(ctx)); err != nil {
		return images.Imported{}, err
	}
	b.warn()
	return b.run(ctx)
}

// configOf finds the configuration of an image that FROM names.
func (b *build) configOf(ctx context.Context) func(name string) (buildplan.Config, error) {
	return func(name string) (buildplan.Config, error) {
		img, err := b.service.verified(b.service.Find(ctx, name))
		return buildplan.Config{ImageConfig: img.Config.Config, Shell: img.Builds.Shell, OnBuild: img.Builds.OnBuild}, err
	}
}

// build is a build under way.
type build struct {
	service *Service
	grant   peer.Grant
	request BuildRequest
	report  func(images.BuildEvent)
	plan    *buildplan.Plan
	files   *os.Root        // that copies of the context read; nil: those of request.Context
	salt    string          // part of the key of each step
	stages  []images.Stored // the image at the end of each stage
	step    int
	steps   int
}

// warn reports what the file says without effect.
func (b *build) warn() {
	for _, w := range b.plan.Warnings {
		at := ""
		if w.Line > 0 {
			at = fmt.Sprintf("line %d: ", w.Line)
		}
		b.report(images.BuildEvent{Output: []byte("warning: " + at + w.Text + "\n"), Stderr: true})
	}
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
		last, err = b.stage(ctx, s)
		last.release()
		if err != nil {
			return images.Imported{}, err
		}
		b.stages = append(b.stages, last.img)
	}
	defer last.release()
	done, err := last.finish(ctx)
	return done, errors.Join(err, b.trimCache(ctx))
}

// buildStage is one stage of the file, and the image so far.
type buildStage struct {
	*build
	plan  buildplan.Stage
	img   images.Stored
	layer *image.Stage // adds to img; nil until a step was not cached
	limit image.Limits // of layer
}

// release lets go of the filter of the stage's layers.
func (t *buildStage) release() {
	if t.layer != nil {
		t.layer.Release()
	}
}

// stage does all steps of s, and returns it also after an error.
func (b *build) stage(ctx context.Context, s buildplan.Stage) (_ *buildStage, err error) {
	t := &buildStage{build: b, plan: s}
	b.progress(s.Line, s.Text, false)
	if s.Empty {
		return t, t.allSteps(ctx)
	}
	if s.Image == "" {
		t.img = b.stages[s.Base]
	} else if t.img, err = b.service.verified(b.service.Find(ctx, s.Image)); err != nil {
		return t, err
	}
	return t, t.allSteps(ctx)
}

func (t *buildStage) allSteps(ctx context.Context) error {
	for _, step := range t.plan.Steps {
		if err := t.do(ctx, step); err != nil {
			return t.abandon(ctx, sbxerr.Wrap(plan.CodeOf(err), "images.build", stepOf(step, err)))
		}
	}
	return nil
}

// isEmpty reports whether the image so far has no files: it began with FROM scratch.
func (t *buildStage) isEmpty() bool { return len(t.img.Layers) == 0 }

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
	var err error
	if t.limit, err = t.service.importLimits(ctx, t.grant); err != nil {
		return nil, err
	}
	var layers []v1.Descriptor
	for i, d := range t.img.Layers {
		if diff := t.img.Config.RootFS.DiffIDs[i]; diff.String() != d {
			return nil, sbxerr.New(sbxerr.ImageFormat, "images.build", "image %q was not stored by caisson: import it", t.img.Name)
		}
		layers = append(layers, v1.Descriptor{MediaType: v1.MediaTypeImageLayer, Digest: digest.Digest(d), Size: t.img.LayerBytes[i]})
	}
	t.layer, err = image.NewStage(t.limit, t.sink(), layers, t.service.store.OpenBlob, imagework.Filter(t.service.options.Program, t.request.Name))
	return t.layer, err
}

func (b *build) sink() *ownedSink {
	return &ownedSink{Store: b.service.store, grant: b.grant, names: &b.service.naming, named: true}
}

// add stores the layer that write writes as the state after the step of key.
func (t *buildStage) add(ctx context.Context, key string, write func(io.Writer) error) error {
	done, err := t.service.imports.work(ctx)
	if err != nil {
		return err
	}
	defer done()
	layer, err := t.adder(ctx)
	if err != nil {
		return err
	}
	if err := layer.Add(ctx, write); err != nil {
		return t.withinQuota(err)
	}
	if err := failpoint.At("build/layer"); err != nil {
		return err
	}
	name := images.CachePrefix + key
	if _, err := layer.Commit(ctx, image.Result{Name: name, Kind: image.KindBuildCache}, t.img.Config.Config); err != nil {
		return t.withinQuota(err)
	}
	t.img, err = t.service.store.GetImage(ctx, t.sink().key(name))
	return errors.Join(err, failpoint.At("build/step"))
}

// withinQuota says of a layer that is too big where the quota made the limit.
func (t *buildStage) withinQuota(err error) error {
	return withinQuota(err, t.grant, t.limit, t.service.settings().Limits)
}

// finish gives the image its name and configuration.
func (t *buildStage) finish(ctx context.Context) (images.Imported, error) {
	if t.isEmpty() { // an image has a layer
		empty := func(w io.Writer) error { return tar.NewWriter(w).Close() }
		if err := t.add(ctx, t.key(buildplan.Step{}, ""), empty); err != nil {
			return images.Imported{}, t.abandon(ctx, err)
		}
	}
	layer, err := t.adder(ctx)
	if err != nil {
		return images.Imported{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	labels := map[string]string{image.LabelReport: t.img.Labels[image.LabelReport]}
	sink := t.sink()
	named, err := image.NewStage(t.service.settings().Limits, sink, layer.Layers(), t.service.store.OpenBlob, imagework.Filter(t.service.options.Program, t.request.Name))
	if err != nil {
		return images.Imported{}, err
	}
	if err := failpoint.At("build/name"); err != nil {
		return images.Imported{}, err
	}
	config := t.plan.Config
	builds := image.ForBuilds{Shell: config.Shell, OnBuild: config.OnBuild}
	result, err := named.Commit(ctx, image.Result{Name: t.request.Name, Kind: image.KindBuild, Created: &now, Labels: labels, Builds: builds}, config.ImageConfig)
	if err != nil {
		return images.Imported{}, named.Abandon(ctx, err)
	}
	return t.service.imported(ctx, sink, result, nil)
}

// dropContext removes files that were sent for this build.
func (b *build) dropContext(ctx context.Context) error {
	if !strings.HasPrefix(b.request.Context, images.ContextPrefix) {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	return b.service.removeImages(ctx, b.sink().key(b.request.Context))
}
