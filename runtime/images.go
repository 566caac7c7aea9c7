package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/rootfs/base"
	"github.com/caisson-run/caisson/rootfs/fromhost"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/sbxerr"
)

// planner answers requests with what this daemon has.
func (m *Manager) planner(ctx context.Context) planner {
	return planner{
		profiles:   m.opts.Profiles,
		workspaces: m.opts.Workspaces,
		network:    m.opts.Network,
		image:      func(ref string) (StoredImage, error) { return m.image(ctx, ref) },
		user: func(img StoredImage, name string) (user, error) {
			layers, err := m.images.Layers(ctx, img)
			if err != nil {
				return user{}, err
			}
			return resolveUser(layers, name)
		},
		slots: m.slots(),
	}
}

// slots are needed where somebody else than root may have a workspace. All
// sandboxes then have them, so that a ready one serves everybody.
func (m *Manager) slots() []uint32 {
	if !m.opts.Peers.Open() {
		return nil
	}
	return mount.GroupSlotIDs()
}

// image finds ref or says what there is.
func (m *Manager) image(ctx context.Context, ref string) (StoredImage, error) {
	img, err := m.images.GetImage(ctx, ref)
	if !errors.Is(err, sbxerr.ImageNotFound) {
		return img, err
	}
	list, listErr := m.images.ListImages(ctx)
	if listErr != nil {
		return StoredImage{}, errors.Join(err, listErr)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
	}
	msg := fmt.Sprintf("no image %q; there are: %s", sbxerr.Clip(ref), strings.Join(names, ", "))
	if near := sbxerr.Nearest(ref, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return StoredImage{}, sbxerr.New(sbxerr.ImageNotFound, "runtime.image", "%s", msg)
}

// EnsureBase makes the embedded image current.
func (m *Manager) EnsureBase(ctx context.Context) error {
	want, err := base.Digest(ctx)
	if err != nil {
		return err
	}
	img, err := m.images.GetImage(ctx, base.Name)
	if err == nil && img.Digest == want.String() {
		return nil
	}
	if err != nil && !errors.Is(err, sbxerr.ImageNotFound) {
		return err
	}
	defer giveBack()
	_, err = base.Build(ctx, m.images)
	return err
}

// ListImages returns the images there are, by name.
func (m *Manager) ListImages(ctx context.Context) ([]Image, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckHost); err != nil {
		return nil, err
	}
	stored, err := m.images.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	list := []Image{}
	for _, s := range stored {
		list = append(list, s.Image)
	}
	slices.SortFunc(list, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// InspectImage returns all that is known of one image.
func (m *Manager) InspectImage(ctx context.Context, name string) (*ImageDetail, error) {
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
	d := &ImageDetail{Image: img.Image, ConfigJSON: config, Layers: img.Layers}
	if report := img.Labels[image.LabelReport]; report != "" {
		var r image.Report
		if err := json.Unmarshal([]byte(report), &r); err != nil {
			return nil, sbxerr.Wrap(sbxerr.Internal, "runtime.image", err)
		}
		d.Report = ImportReport(r)
	}
	return d, nil
}

// RemoveImage removes an image that no sandbox needs.
func (m *Manager) RemoveImage(ctx context.Context, name string) error {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckImages); err != nil {
		return err
	}
	img, err := m.image(ctx, name)
	if err != nil {
		return err
	}
	if err := m.awaitUnused(ctx, img); err != nil {
		return err
	}
	if err := m.images.RemoveImage(ctx, img.Name); err != nil {
		return err
	}
	return m.releaseViews(ctx)
}

// awaitUnused refuses while a sandbox runs on img, and waits for those that
// have ended and are being removed.
func (m *Manager) awaitUnused(ctx context.Context, img StoredImage) error {
	var users []string
	var going []*sandbox
	for _, s := range m.all() {
		switch r, state := s.kept(), s.info().State; {
		case r.ChainID != img.ChainID || state == StateExited:
		case state == StateRemoving || state == StateStopping:
			going = append(going, s)
		case r.Pooled:
			s.end(errImageGone)
			going = append(going, s)
		default:
			users = append(users, r.Name)
		}
	}
	if len(users) > 0 {
		return sbxerr.New(sbxerr.ImageInUse, "runtime.image", "image %q is needed by %s", img.Name, strings.Join(users, ", "))
	}
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

// ImportImage reads an image archive under a name, or under that which the
// archive states where name is empty.
func (m *Manager) ImportImage(ctx context.Context, name string, r io.Reader, progress func(string)) (Image, ImportReport, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckImages); err != nil {
		return Image{}, ImportReport{}, err
	}
	result, err := image.Import(ctx, r, image.Options{
		Name: name, SpoolDir: m.paths.spool(), Limits: m.opts.ImageLimits, Progress: progress,
	}, m.images)
	return m.imported(ctx, result, err)
}

// FromHost makes an image of software that is installed on this host.
func (m *Manager) FromHost(ctx context.Context, r FromHostRequest, progress func(string)) (Image, ImportReport, error) {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckAdmin); err != nil {
		return Image{}, ImportReport{}, err
	}
	if err := image.CheckName(r.Name); err != nil {
		return Image{}, ImportReport{}, err
	}
	limits := fromhost.Limits{Bytes: m.opts.ImageLimits.Bytes, Entries: m.opts.ImageLimits.Entries}
	software, err := fromhost.Collect(ctx, fromhost.Host{Root: "/", RPM: fromhost.QueryRPM},
		fromhost.Request{Packages: r.Packages, Paths: r.Paths, Limits: limits})
	if err != nil {
		return Image{}, ImportReport{}, err
	}
	for _, line := range append([]string{software.Summary()}, software.Warnings...) {
		progress(line)
	}
	result, err := image.Build(ctx, image.BuildOptions{
		Name: r.Name, Kind: image.KindFromHost, Config: v1.ImageConfig{Env: software.Env}, Limits: m.opts.ImageLimits, Progress: progress,
	}, m.images, func(w *image.Writer) error {
		_, err := fromhost.Write(ctx, software, w)
		return err
	})
	return m.imported(ctx, result, err)
}

// giveBack ends an import, whose heap is many times the daemon's own: Go would keep
// it.
func giveBack() { debug.FreeOSMemory() }

func (m *Manager) imported(ctx context.Context, result image.Result, err error) (Image, ImportReport, error) {
	defer giveBack()
	if err != nil {
		return Image{}, ImportReport{}, err
	}
	img, err := m.images.GetImage(ctx, result.Name)
	if err != nil {
		return Image{}, ImportReport{}, err
	}
	return img.Image, ImportReport(result.Report), m.releaseViews(ctx) // of the image that it replaced
}
