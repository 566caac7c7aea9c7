package imageservice

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

// Tag gives an image of those that the caller sees a name of the caller's own.
func (s *Service) Tag(ctx context.Context, name, newName string) (images.Imported, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckImages)
	if err == nil {
		err = image.CheckName(newName)
	}
	if err != nil {
		return images.Imported{}, err
	}
	img, err := s.Find(ctx, name)
	if err != nil {
		return images.Imported{}, err
	}
	limits, err := s.importLimits(ctx, g)
	if err == nil && img.SizeBytes > limits.Bytes {
		err = withinQuota(sbxerr.New(sbxerr.ImageTooBig, "images.tag", "image %q has %d bytes", img.Name, img.SizeBytes), g, limits, s.settings().Limits)
	}
	if err != nil {
		return images.Imported{}, err
	}
	report, err := img.Report()
	if err != nil {
		return images.Imported{}, err
	}
	sink := &ownedSink{Store: s.store, grant: g, names: &s.naming, named: true}
	err = sink.Commit(ctx, newName, img.Manifest, img.Labels)
	return s.imported(ctx, sink, image.Result{Name: newName, Report: image.Report(report)}, err)
}

// Save writes images that the caller sees to w, as one tar.
func (s *Service) Save(ctx context.Context, names []string, w io.Writer) error {
	defer s.fleet.Busy()()
	if _, err := s.grant(ctx, peer.Grant.CheckHost); err != nil {
		return err
	}
	var list []images.Stored
	for _, name := range names {
		img, err := s.Find(ctx, name)
		if err != nil {
			return err
		}
		list = append(list, img)
	}
	return s.store.Export(ctx, list, w)
}

// Prune removes the caller's images that nothing needs.
func (s *Service) Prune(ctx context.Context, r images.PruneRequest) (images.Pruned, error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckImages)
	if err == nil && !r.Unused && r.Until == 0 {
		err = sbxerr.New(sbxerr.Config, "images.prune", "give unused or until: they say which images are removed")
	}
	if err != nil {
		return images.Pruned{}, err
	}
	list, err := s.store.ListImages(ctx)
	if err != nil {
		return images.Pruned{}, err
	}
	needed := s.neededImages()
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
	return done, s.dropImages(ctx, g, drop)
}

// neededImages are the keys of the images that sandboxes, profiles, pools and languages
// need. The embedded image is always needed.
func (s *Service) neededImages() map[string]bool {
	needed := map[string]bool{base.Name: true}
	for _, name := range s.fleet.Configured() {
		name, _, _ = strings.Cut(name, "@") // pinned to a digest
		needed[name] = true
	}
	keys, _ := s.fleet.Needed()
	for _, key := range keys {
		needed[key] = true
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

// Usage says how much of the disk the images that the caller sees take, each and all
// together.
func (s *Service) Usage(ctx context.Context) (list []images.DiskUsage, stored int64, err error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckHost)
	if err != nil {
		return nil, 0, err
	}
	all, err := s.store.ListImages(ctx)
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
			if u.UnpackedBytes, err = s.store.Unpacked(ctx, i.ChainID); err != nil {
				return nil, 0, err
			}
		}
		list = append(list, u)
	}
	return list, storedBytes(all), nil
}
