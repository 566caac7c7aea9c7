package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/fromhost"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// planner answers requests with what this daemon has.
func (m *Manager) planner(ctx context.Context) plan.Planner {
	settings := m.settings()
	return plan.Planner{
		ID:         newID(),
		Profiles:   settings.Profiles,
		Workspaces: settings.Workspaces,
		Network:    m.opts.Network,
		Image:      func(ref string) (images.Stored, error) { return m.usedImage(m.verifiedImage(m.image(ctx, ref))) },
		RootImage:  func(ref string) (images.Stored, error) { return m.verifiedImage(m.imageIn(ctx, images.RootScope, ref)) },
		Languages:  settings.Languages,
		User: func(img images.Stored, name string) (plan.User, error) {
			layers, err := m.layers(ctx, img)
			if err != nil {
				return plan.User{}, err
			}
			return resolveUser(layers, name)
		},
		Slots: m.slots(),
	}
}

// slots are needed where somebody else than root may have a workspace. All
// sandboxes then have them, so that a ready one serves everybody.
func (h *host) slots() []uint32 {
	if !h.settings().Peers.Open() {
		return nil
	}
	return mount.GroupSlotIDs()
}

// ListImages returns the images that the caller may use, by name. Root sees all.
func (m *Manager) ListImages(ctx context.Context) ([]images.Image, error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckHost()
	}
	if err != nil {
		return nil, err
	}
	stored, err := m.images.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	list := []images.Image{}
	for _, s := range images.ScopeOf(g).Visible(stored) {
		if images.OfBuild(s.Name) {
			continue
		}
		list = append(list, s.Image)
	}
	slices.SortFunc(list, func(a, b images.Image) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
	return list, nil
}

// InspectImage returns all that is known of one image.
func (m *Manager) InspectImage(ctx context.Context, name string) (*images.Detail, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckHost); err != nil {
		return nil, err
	}
	img, err := m.image(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := json.MarshalIndent(img.Config, "", "  ")
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "runtime.image", err)
	}
	report, err := img.Report()
	return &images.Detail{Image: img.Image, ConfigJSON: config, Layers: img.Layers, Report: report}, err
}

// RemoveImage removes an image that no sandbox needs. It may be damaged.
func (m *Manager) RemoveImage(ctx context.Context, name string) error {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckImages()
	}
	if err != nil {
		return err
	}
	img, err := m.imageIn(ctx, images.ScopeOf(g), name)
	if err != nil && img.Name == "" {
		return err
	}
	return m.dropImages(ctx, g, []images.Stored{img})
}

// dropImages removes images that no sandbox needs, all or none.
func (m *Manager) dropImages(ctx context.Context, g peer.Grant, list []images.Stored) error {
	var keys []string
	for _, img := range list {
		if err := g.CheckOwnImage(img.Owner, img.Name); err != nil {
			return err
		}
		if err := m.awaitUnused(ctx, g, img); err != nil {
			return err
		}
		keys = append(keys, img.Key())
	}
	errs := []error{m.removeImages(ctx, keys...)}
	if errs[0] == nil {
		for _, img := range list {
			errs = append(errs, m.confirmImage(ctx, events.ImageRemoved, img.Image))
		}
	}
	return errors.Join(errs...)
}

// removeImages removes images, and the unpacked layers that nobody needs any more.
func (m *Manager) removeImages(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	if err := m.images.RemoveImages(ctx, keys...); err != nil {
		return err
	}
	return m.releaseViews(ctx)
}

// awaitUnused refuses while a sandbox runs on img, and waits for those that
// have ended and are being removed. Another image may have the same layers: they
// stay for as long as a sandbox needs them.
func (m *Manager) awaitUnused(ctx context.Context, g peer.Grant, img images.Stored) error {
	users, going := m.usersOf(g, func(r record) bool { return r.Image == img.Key() && r.ImageDigest == img.Digest })
	if len(users) > 0 {
		return sbxerr.New(sbxerr.ImageInUse, "runtime.image", "image %q is needed by %s", img.Name, strings.Join(users, ", "))
	}
	return awaitGone(ctx, going)
}

// usersOf names the sandboxes that live and use something, as far as g may know of them.
// Those that are being removed are returned, too; what waits in a pool is removed.
func (m *Manager) usersOf(g peer.Grant, uses func(record) bool) (users []string, going []*sandbox) {
	for _, s := range m.all() {
		switch r, state := s.kept(), s.info().State; {
		case !uses(r) || state == StateExited:
		case state == StateRemoving || state == StateStopping:
			going = append(going, s)
		case r.Pooled:
			s.end(errOutdated)
			going = append(going, s)
		case s.identity().seenBy(g):
			users = append(users, r.Name)
		default:
			users = append(users, "a sandbox of another user")
		}
	}
	slices.Sort(users)
	return slices.Compact(users), going
}

// awaitGone waits until sandboxes are removed.
func awaitGone(ctx context.Context, going []*sandbox) error {
	for _, s := range going {
		if err := wait(ctx, s.gone); err != nil {
			return err
		}
	}
	return nil
}

// releaseViews drops unpacked layers that nobody needs any more.
func (m *Manager) releaseViews(ctx context.Context) error {
	unused, err := m.unusedViews(ctx)
	errs := []error{err}
	for _, v := range unused {
		errs = append(errs, m.images.ReleaseView(ctx, v.ID))
	}
	return errors.Join(errs...)
}

// FromHost makes an image of software that is installed on this host.
func (m *Manager) FromHost(ctx context.Context, r images.FromHostRequest, progress func(string)) (images.Imported, error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckAdmin()
	}
	if err != nil {
		return images.Imported{}, err
	}
	if err := image.CheckName(r.Name); err != nil {
		return images.Imported{}, err
	}
	limits := fromhost.Limits{Bytes: m.settings().ImageLimits.Bytes, Entries: m.settings().ImageLimits.Entries}
	software, err := fromhost.Collect(ctx, fromhost.Request{Root: "/", Packages: r.Packages, Paths: r.Paths, Limits: limits})
	if err != nil {
		return images.Imported{}, err
	}
	defer software.Close()
	progress(software.Summary)
	done, err := m.imports.work(ctx)
	if err != nil {
		return images.Imported{}, err
	}
	defer done()
	sink := &ownedSink{Store: m.images, grant: g, names: &m.naming, named: true}
	result, err := image.Build(ctx, image.BuildOptions{
		Name: r.Name, Kind: image.KindFromHost, Config: v1.ImageConfig{Env: software.Env}, Limits: m.settings().ImageLimits, Progress: progress,
	}, sink, func(w *image.Writer) error {
		warnings, err := software.Write(w)
		for _, line := range warnings {
			progress(line)
		}
		return err
	})
	return m.imported(ctx, sink, result, err)
}

func (m *Manager) imported(ctx context.Context, sink *ownedSink, result image.Result, err error) (images.Imported, error) {
	if err != nil {
		return images.Imported{}, err
	}
	img, err := m.images.GetImage(ctx, sink.key(result.Name))
	if err != nil {
		return images.Imported{}, err
	}
	m.watchSpace()
	done := images.Imported{Image: img.Image, Report: images.Report(result.Report), Replaced: sink.replaced}
	return done, cmp.Or(m.confirmImage(ctx, events.ImageImported, img.Image), m.releaseViews(ctx)) // of the image that it replaced
}
