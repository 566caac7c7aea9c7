package imageservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/registry"
)

// progressEvery is how often the progress of layers is reported.
const progressEvery = 200 * time.Millisecond

// Pull fetches an image from its registry. The image belongs to the caller. Layers
// pass the filter before they are stored, as those of an archive do.
func (s *Service) Pull(ctx context.Context, r images.PullRequest, progress func(images.PullProgress)) (_ images.Imported, err error) {
	defer s.fleet.Busy()()
	g, err := s.grant(ctx, peer.Grant.CheckImages)
	if err != nil {
		return images.Imported{}, err
	}
	ref, err := s.mayPull(ctx, g, r.Name)
	if err != nil {
		return images.Imported{}, err
	}
	done, err := s.imports.begin(ctx, g)
	if err != nil {
		return images.Imported{}, err
	}
	defer done()
	ctx, stop := context.WithTimeout(ctx, s.settings().Registry.Timeout())
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	progress(images.PullProgress{Message: "resolving " + ref.Name})
	limits, err := s.importLimits(ctx, g)
	if err != nil {
		return images.Imported{}, err
	}
	session, err := s.settings().Registry.Open(ctx, s.options.Program, ref, registry.Caller{UID: g.Owner().UID, Root: g.CheckAdmin() == nil, Credentials: r.Credentials}, limits)
	if err != nil {
		return images.Imported{}, err
	}
	defer func() { err = session.Close(err) }()
	pulled, err := s.pull(ctx, pulling{g: g, ref: ref, limits: limits, session: session, cancel: cancel, progress: progress})
	return pulled, badContent(ref, err)
}

// badContent names the registry as the one to look at if its image is damaged or none.
func badContent(ref registry.Reference, err error) error {
	if sbxerr.Of(err) != sbxerr.ImageFormat {
		return err
	}
	return sbxerr.WithRemedy(sbxerr.ImageFormat, "images.pull", fmt.Errorf("pull %s: %w", ref, err),
		"pull again; if that does not help, push the image again: its copy in the registry or mirror is damaged, or no image for this runtime")
}

// pulling is a pull under way.
type pulling struct {
	g        peer.Grant
	ref      registry.Reference
	limits   image.Limits
	session  *registry.Session
	cancel   context.CancelCauseFunc
	progress func(images.PullProgress)
}

// mayPull refuses what the configuration does not allow, before anything is asked.
func (s *Service) mayPull(ctx context.Context, g peer.Grant, name string) (registry.Reference, error) {
	if s.options.AirGapped {
		there, err := s.imagesThere(ctx, images.ScopeOf(g), name)
		if err != nil {
			return registry.Reference{}, err
		}
		return registry.Reference{}, sbxerr.WithRemedy(sbxerr.PullRefused, "images.pull", fmt.Errorf("air_gapped is set, so no registry is asked; %s", there),
			"use an image that is there, or import it from a file: caisson image import")
	}
	ref, err := registry.Parse(name)
	if err != nil {
		return ref, err
	}
	return ref, s.settings().Registry.Check(ref)
}

func (s *Service) pull(ctx context.Context, p pulling) (images.Imported, error) {
	limits := p.limits
	remote, err := p.session.Find(ctx, s.options.Program)
	if err != nil {
		return images.Imported{}, withinQuota(err, p.g, limits, s.settings().Limits)
	}
	defer remote.Close()
	verified, err := p.session.Verify(remote.Remote)
	if err != nil {
		return images.Imported{}, err
	}
	labels := map[string]string{image.LabelRepository: p.ref.Repository(), image.LabelTarget: remote.Target.Digest.String()}
	if verified != "" {
		labels[image.LabelVerified] = verified
	}
	list, err := s.store.ListImages(ctx)
	if err != nil {
		return images.Imported{}, err
	}
	list = images.ScopeOf(p.g).Visible(list)
	sink := &ownedSink{Store: s.store, grant: p.g, names: &s.naming, named: true}
	if there, ok := s.present(ctx, sink, wanted{p.ref.Name, remote.Source.Digest.String(), labels}, list, limits.Bytes); ok {
		return there, nil
	}
	defer s.reportLayers(p, remote.Remote)()
	result, err := s.storeRemote(ctx, p, remote, image.StoreOptions{
		Name: p.ref.Name, Limits: limits, Labels: labels, Target: remote.Target.Digest, Layers: remote.Digests(),
		Progress: func(line string) { p.progress(images.PullProgress{Message: line}) },
	}, knownLayers(list), sink)
	return s.imported(ctx, sink, result, withinQuota(err, p.g, limits, s.settings().Limits))
}

// storeRemote fetches and stores an image. Where a stored copy of a layer is gone, the image is found
// anew: its process has given what it had.
func (s *Service) storeRemote(ctx context.Context, p pulling, remote *imagework.Remote, o image.StoreOptions, known map[string]digest.Digest, sink image.Sink) (image.Result, error) {
	layers := imagework.Layers{Ready: s.imports.work, Open: s.store.OpenBlob}
	return image.Again(func() (_ image.Result, err error) {
		if remote == nil {
			if remote, err = p.session.Find(ctx, s.options.Program); err != nil {
				return image.Result{}, err
			}
		}
		from := remote
		remote = nil
		defer from.Close()
		layers.Stored = s.storedLayers(ctx, from.Digests(), known)
		feed, err := from.Feed(ctx, layers)
		if err != nil {
			return image.Result{}, err
		}
		return image.Store(ctx, o, from.Head, feed, sink)
	})
}

// storedLayers are the lowest layers of a registry's image, as far as they are stored.
func (s *Service) storedLayers(ctx context.Context, layers []digest.Digest, known map[string]digest.Digest) (stored []digest.Digest) {
	for _, chain := range identity.ChainIDs(layers) {
		d, ok := known[chain.String()]
		if !ok {
			break
		}
		blob, err := s.store.OpenBlob(ctx, d)
		if err != nil { // it was removed meanwhile
			break
		}
		blob.Close() // it is opened again when it is read
		stored = append(stored, d)
	}
	return stored
}

// wanted is an image as it is to be stored.
type wanted struct {
	name   string
	source string            // digest of its manifest in the registry
	labels map[string]string // that follow from this pull
}

// present finds the registry's image among those of list, and names it.
func (s *Service) present(ctx context.Context, sink *ownedSink, w wanted, list []images.Stored, most int64) (images.Imported, bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(i images.Stored) bool {
		return i.Labels[image.LabelSource] != w.source || i.Source != image.KindRegistry || i.Damaged != ""
	})
	other := func(i images.Stored) int {
		if i.Key() == sink.key(w.name) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b images.Stored) int { return cmp.Compare(other(a), other(b)) })
	for _, i := range list {
		labels := maps.Clone(i.Labels)
		maps.Copy(labels, w.labels)
		report, err := i.Report()
		if err == nil && i.Key() == sink.key(w.name) && maps.Equal(labels, i.Labels) {
			return images.Imported{Image: i.Image, Report: report, Present: true}, true
		}
		if err != nil || i.Owner != sink.grant.Owner().UID && i.SizeBytes > most {
			continue
		}
		if sink.Commit(ctx, w.name, i.Manifest, labels) != nil {
			continue // it is removed or damaged: it is fetched instead
		}
		done, err := s.imported(ctx, sink, image.Result{Name: w.name, Report: image.Report(report)}, nil)
		done.Present = true
		return done, err == nil
	}
	return images.Imported{}, false
}

// knownLayers are the stored layers of images, by the chain IDs of the layers in their
// registries.
func knownLayers(list []images.Stored) map[string]digest.Digest {
	known := map[string]digest.Digest{}
	for _, i := range list {
		for n, d := range i.Layers {
			if chain := i.Labels[image.LabelLayer(n)]; chain != "" && i.Source == image.KindRegistry {
				known[chain] = digest.Digest(d)
			}
		}
	}
	return known
}

// reportLayers reports the layers of remote until the function that it returns is called. A pull
// that takes more of the disk than its layers is ended.
func (s *Service) reportLayers(p pulling, remote image.Remote) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		var last []images.LayerProgress
		for going := true; going; {
			select {
			case <-end:
				going = false
			case <-ticker.C:
			}
			if now := layersOf(p.session, remote); !slices.Equal(now, last) {
				p.progress(images.PullProgress{Layers: now})
				last = now
			}
			if err := p.session.Check(); err != nil {
				p.cancel(err)
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

func layersOf(s *registry.Session, remote image.Remote) []images.LayerProgress {
	var list []images.LayerProgress
	for _, d := range remote.Layers {
		l := images.LayerProgress{Digest: d.Digest.String(), Size: d.Size, Received: d.Size, State: "present"}
		if p, ok := s.Progress(l.Digest); ok {
			l.Received, l.State = p.Received, p.State
		}
		list = append(list, l)
	}
	return list
}

// verified refuses an image that is not verified as the configuration now demands.
func (s *Service) verified(img images.Stored, err error) (images.Stored, error) {
	if err == nil {
		err = s.settings().Registry.CheckVerified(img.Labels[image.LabelRepository], img.Labels[image.LabelVerified])
	}
	return img, err
}

// StartPull does PullAll in the background. A registry that does not answer holds up nothing.
func (s *Service) StartPull(ctx context.Context) {
	ctx = peer.NewContext(ctx, peer.System)
	go func() {
		err := s.PullAll(ctx, func(images.PullProgress) {}, func(i images.Imported) {
			if !i.Present {
				s.options.Log.Info("pulled an image", "image", i.Image.Name, "digest", i.Image.Digest)
			}
		})
		if err != nil && ctx.Err() == nil {
			s.options.Log.Warn("pull the images of the configuration", "err", err)
		}
	}()
}

// PullAll fetches the images that profiles, pools and languages name with their registries. It
// reports each that is there, and goes on after one that fails.
func (s *Service) PullAll(ctx context.Context, progress func(images.PullProgress), each func(images.Imported)) error {
	defer s.fleet.Busy()()
	if _, err := s.grant(ctx, peer.Grant.CheckAdmin); err != nil {
		return err
	}
	var errs []error
	for _, name := range s.fleet.Configured() {
		if !registry.Has(name) {
			continue
		}
		done, err := s.Pull(ctx, images.PullRequest{Name: name}, progress)
		if err == nil {
			each(done)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
