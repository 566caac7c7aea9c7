package imageservice

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/registry"
)

// Fleet has the sandboxes that are made of images, and makes those in which builds work.
type Fleet interface {
	// Busy counts a call until done is called.
	Busy() (done func())
	// Grant is what the caller in ctx may do.
	Grant(ctx context.Context) (peer.Grant, error)
	// Settings are those in force.
	Settings() Settings
	// Configured are the names of images that the configuration has, sorted.
	Configured() []string
	// UsersOf names the sandboxes that use an image, as far as g may know of them. A sandbox
	// that is being removed is in going instead, by what is closed when it is gone.
	UsersOf(g peer.Grant, img images.Stored) (users []string, going []<-chan struct{})
	// Needed returns the keys of the images that sandboxes need, and the chain IDs of those
	// that their root file systems are made of.
	Needed() (keys, chains []string)
	// StepPolicy is the policy of the network that a build step of r would have.
	StepPolicy(ctx context.Context, r plan.CreateRequest) (netns.Mode, policy.Spec, error)
	// RunStep runs a command in a sandbox of its own, which is gone afterwards. It calls made
	// before the command starts.
	RunStep(ctx context.Context, r plan.Request, made func(StepSandbox) error, stdout, stderr io.Writer) (StepResult, error)
}

// Settings is what can change while a Service works.
type Settings struct {
	Limits   image.Limits // of an import
	Prune    PrunePolicy
	Registry *registry.Client
}

// Options is what a Service is made of.
type Options struct {
	Root      string            // its disk has the images
	Spool     string            // directory of archives that are being received
	Uses      string            // directory of the times at which images were used
	View      string            // where the daemon opens an image for itself
	Gateway   string            // the caisson-gateway that fetches what ADD of a Dockerfile names
	Program   imageproc.Program // parses images and Dockerfiles
	AirGapped bool              // no registry is asked
	Events    *events.Bus
	Log       *slog.Logger
}

// Service manages images for callers, and finds them for sandboxes. All of its methods may be
// called at the same time.
type Service struct {
	store   images.Store
	fleet   Fleet
	options Options
	began   time.Time
	stored  chan struct{} // holds one when an image was stored
	imports *imports
	naming  sync.Mutex // held while an image takes a name
	viewing sync.Mutex // held while an image is opened: one directory serves all
	caches  named      // those of builds that a command wants for itself
}

// NewService returns the Service of the images in a store.
func NewService(store images.Store, fleet Fleet, o Options) *Service {
	return &Service{store: store, fleet: fleet, options: o, began: time.Now(), stored: make(chan struct{}, 1), imports: newImports()}
}

func (s *Service) settings() Settings { return s.fleet.Settings() }

// grant is what the caller in ctx may do, if check passes it.
func (s *Service) grant(ctx context.Context, check func(peer.Grant) error) (peer.Grant, error) {
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = check(g)
	}
	return g, err
}

// List returns the images that the caller may use, by name. Root sees all.
func (s *Service) List(ctx context.Context) ([]images.Image, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckHost)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	list := []images.Image{}
	for _, i := range images.ScopeOf(g).Visible(stored) {
		if images.OfBuild(i.Name) {
			continue
		}
		list = append(list, i.Image)
	}
	slices.SortFunc(list, func(a, b images.Image) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
	return list, nil
}

// Inspect returns all that is known of one image.
func (s *Service) Inspect(ctx context.Context, name string) (*images.Detail, error) {
	defer s.fleet.Busy()()
	if _, err := s.grant(ctx, peer.Grant.CheckHost); err != nil {
		return nil, err
	}
	img, err := s.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := json.MarshalIndent(img.Config, "", "  ")
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "images.image", err)
	}
	report, err := img.Report()
	return &images.Detail{Image: img.Image, ConfigJSON: config, Layers: img.Layers, Report: report}, err
}

// Remove removes an image that no sandbox needs. It may be damaged.
func (s *Service) Remove(ctx context.Context, name string) error {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckImages)
	if err != nil {
		return err
	}
	img, err := s.findIn(ctx, images.ScopeOf(g), name)
	if err != nil && img.Name == "" {
		return err
	}
	return s.dropImages(ctx, g, []images.Stored{img})
}

// dropImages removes images that no sandbox needs, all or none.
func (s *Service) dropImages(ctx context.Context, g peer.Grant, list []images.Stored) error {
	var keys []string
	for _, img := range list {
		if err := g.CheckOwnImage(img.Owner, img.Name); err != nil {
			return err
		}
		if err := s.awaitUnused(ctx, g, img); err != nil {
			return err
		}
		keys = append(keys, img.Key())
	}
	errs := []error{s.removeImages(ctx, keys...)}
	if errs[0] == nil {
		for _, img := range list {
			errs = append(errs, s.confirm(ctx, events.ImageRemoved, img.Image))
		}
	}
	return errors.Join(errs...)
}

// removeImages removes images, and the unpacked layers that nobody needs any more.
func (s *Service) removeImages(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	if err := s.store.RemoveImages(ctx, keys...); err != nil {
		return err
	}
	return s.releaseViews(ctx)
}

// awaitUnused refuses while a sandbox runs on img, and waits for those that
// have ended and are being removed. Another image may have the same layers: they
// stay for as long as a sandbox needs them.
func (s *Service) awaitUnused(ctx context.Context, g peer.Grant, img images.Stored) error {
	users, going := s.fleet.UsersOf(g, img)
	if len(users) > 0 {
		return sbxerr.New(sbxerr.ImageInUse, "images.image", "image %q is needed by %s", img.Name, strings.Join(users, ", "))
	}
	for _, gone := range going {
		select {
		case <-gone:
		case <-ctx.Done():
			return sbxerr.Wrap(sbxerr.Canceled, "images.remove", context.Cause(ctx))
		}
	}
	return nil
}

// FromHost makes an image of software that is installed on this host.
func (s *Service) FromHost(ctx context.Context, r images.FromHostRequest, progress func(string)) (images.Imported, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckAdmin)
	if err == nil {
		err = g.CheckLocal("software of the host")
	}
	if err != nil {
		return images.Imported{}, err
	}
	if err := image.CheckName(r.Name); err != nil {
		return images.Imported{}, err
	}
	software, err := imagework.Collect(ctx, s.options.Program, imagework.HostRequest{Root: "/", Packages: r.Packages, Paths: r.Paths, Limits: s.settings().Limits})
	if err != nil {
		return images.Imported{}, err
	}
	defer software.Close()
	progress(software.Summary)
	done, err := s.imports.work(ctx)
	if err != nil {
		return images.Imported{}, err
	}
	defer done()
	sink := &ownedSink{Store: s.store, grant: g, names: &s.naming, named: true}
	result, err := image.Build(ctx, image.BuildOptions{
		Name: r.Name, Kind: image.KindFromHost, Config: v1.ImageConfig{Env: software.Env}, Limits: s.settings().Limits, Progress: progress,
	}, sink, func(w io.Writer) (image.Report, error) {
		report, warnings, err := software.Write(ctx, w)
		for _, line := range warnings {
			progress(line)
		}
		return report, err
	})
	return s.imported(ctx, sink, result, err)
}

// imported tells of an image that was stored, and lets go of that which it replaced.
func (s *Service) imported(ctx context.Context, sink *ownedSink, result image.Result, err error) (images.Imported, error) {
	if err != nil {
		return images.Imported{}, err
	}
	img, err := s.store.GetImage(ctx, sink.key(result.Name))
	if err != nil {
		return images.Imported{}, err
	}
	s.watchSpace()
	done := images.Imported{Image: img.Image, Report: images.Report(result.Report), Replaced: sink.replaced}
	return done, cmp.Or(s.confirm(ctx, events.ImageImported, img.Image), s.releaseViews(ctx)) // of the image that it replaced
}

// confirm tells of an image, which belongs to a user.
func (s *Service) confirm(ctx context.Context, t events.Type, i images.Image) error {
	return s.options.Events.Confirm(ctx, events.Event{Type: t, Scope: events.Scope{Owner: i.Owner}, Data: events.Data{Image: i.Name, ImageDigest: i.Digest, Verified: i.Verified, Bytes: i.SizeBytes}})
}
