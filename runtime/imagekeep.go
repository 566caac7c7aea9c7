package runtime

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/base"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// TagImage gives an image of those that the caller sees a name of the caller's own.
func (m *Manager) TagImage(ctx context.Context, name, newName string) (images.Imported, error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckImages()
	}
	if err == nil {
		err = image.CheckName(newName)
	}
	if err != nil {
		return images.Imported{}, err
	}
	img, err := m.image(ctx, name)
	if err != nil {
		return images.Imported{}, err
	}
	limits, err := m.importLimits(ctx, g)
	if err == nil && img.SizeBytes > limits.Bytes {
		err = withinQuota(sbxerr.New(sbxerr.ImageTooBig, "runtime.tag", "image %q has %d bytes", img.Name, img.SizeBytes), g, limits, m.settings().ImageLimits)
	}
	if err != nil {
		return images.Imported{}, err
	}
	report, err := img.Report()
	if err != nil {
		return images.Imported{}, err
	}
	sink := &ownedSink{Store: m.images, grant: g, names: &m.naming, named: true}
	err = sink.Commit(ctx, newName, img.Manifest, img.Labels)
	return m.imported(ctx, sink, image.Result{Name: newName, Report: image.Report(report)}, err)
}

// SaveImages writes images that the caller sees to w, as one tar.
func (m *Manager) SaveImages(ctx context.Context, names []string, w io.Writer) error {
	defer m.Busy()()
	if err := m.permit(ctx, peer.Grant.CheckHost); err != nil {
		return err
	}
	var list []images.Stored
	for _, name := range names {
		img, err := m.image(ctx, name)
		if err != nil {
			return err
		}
		list = append(list, img)
	}
	return m.images.Export(ctx, list, w)
}

// PruneImages removes the caller's images that nothing needs.
func (m *Manager) PruneImages(ctx context.Context, r images.PruneRequest) (images.Pruned, error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckImages()
	}
	if err == nil && !r.Unused && r.Until == 0 {
		err = sbxerr.New(sbxerr.Config, "runtime.prune", "give unused or until: they say which images are removed")
	}
	if err != nil {
		return images.Pruned{}, err
	}
	list, err := m.images.ListImages(ctx)
	if err != nil {
		return images.Pruned{}, err
	}
	needed := m.neededImages()
	var left, drop []images.Stored
	var done images.Pruned
	for _, i := range list {
		old := r.Until == 0 || time.Since(i.CreatedAt) >= r.Until
		if i.Owner != g.Owner().UID || needed[i.Key()] || !old {
			left = append(left, i)
			continue
		}
		drop, done.Images = append(drop, i), append(done.Images, i.Image)
	}
	done.FreedBytes = freed(list, left)
	if r.DryRun || len(drop) == 0 {
		return done, nil
	}
	return done, m.dropImages(ctx, g, drop)
}

// neededImages are the keys of the images that sandboxes, profiles, pools and languages
// need. The embedded image is always needed.
func (m *Manager) neededImages() map[string]bool {
	needed := map[string]bool{base.Name: true}
	for _, name := range m.configuredImages() {
		name, _, _ = strings.Cut(name, "@") // pinned to a digest
		needed[name] = true
	}
	for _, s := range m.all() {
		if r := s.kept(); s.info().State != StateExited && !r.Pooled {
			needed[r.Image] = true
		}
	}
	return needed
}

// freed is what the layers take that left does not have.
func freed(list, left []images.Stored) int64 { return storedBytes(list) - storedBytes(left) }

// storedBytes adds up the layers of list, each once.
func storedBytes(list []images.Stored) int64 {
	var sum int64
	for _, size := range layerBytes(list) {
		sum += size
	}
	return sum
}

// layerBytes are the sizes of the layers of list, by digest.
func layerBytes(list []images.Stored) map[string]int64 {
	sizes := map[string]int64{}
	for _, i := range list {
		for n, size := range i.LayerBytes {
			sizes[i.Layers[n]] = size
		}
	}
	return sizes
}

// ImageUsage says how much of the disk the images that the caller sees take, each and all
// together.
func (m *Manager) ImageUsage(ctx context.Context) (list []images.DiskUsage, stored int64, err error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err == nil {
		err = g.CheckHost()
	}
	if err != nil {
		return nil, 0, err
	}
	all, err := m.images.ListImages(ctx)
	if err != nil {
		return nil, 0, err
	}
	all = images.ScopeOf(g).Visible(all)
	for n, i := range all {
		others := layerBytes(slices.Concat(all[:n], all[n+1:]))
		u := images.DiskUsage{Image: i.Image}
		for layer, size := range layerBytes([]images.Stored{i}) {
			if _, shared := others[layer]; shared {
				u.SharedBytes += size
			}
		}
		if i.Damaged == "" {
			if u.UnpackedBytes, err = m.images.Unpacked(ctx, i.ChainID); err != nil {
				return nil, 0, err
			}
		}
		list = append(list, u)
	}
	return list, storedBytes(all), nil
}

// configuredImages are the names that profiles, pools and languages have in the configuration.
func (h *host) configuredImages() []string {
	var names []string
	for _, p := range h.settings().Profiles {
		names = append(names, p.Image)
	}
	for _, p := range h.opts.Pools {
		names = append(names, p.Image)
	}
	for _, name := range h.settings().Languages {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
