package imageservice

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
)

// view opens an image for the daemon, read-only. One without layers is empty.
func (s *Service) view(ctx context.Context, img images.Stored) (*os.Root, error) {
	var layers []string
	if len(img.Layers) > 0 {
		var err error
		if layers, err = s.Layers(ctx, img); err != nil {
			return nil, err
		}
	}
	s.viewing.Lock()
	defer s.viewing.Unlock()
	return mount.View(layers, s.options.View)
}

// Open opens the image of a digest, whoever has it, to read it.
func (s *Service) Open(ctx context.Context, digest string) (*os.Root, error) {
	list, err := s.store.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(img images.Stored) bool { return img.Digest == digest })
	if i < 0 {
		return nil, notWithDigest("images.open", digest)
	}
	img, err := s.store.GetImage(ctx, list[i].Key())
	if err != nil {
		return nil, err
	}
	return s.view(ctx, img)
}

// releaseViews drops unpacked layers that nobody needs any more.
func (s *Service) releaseViews(ctx context.Context) error {
	unused, err := s.UnusedViews(ctx)
	errs := []error{err}
	for _, v := range unused {
		errs = append(errs, s.store.ReleaseView(ctx, v))
	}
	return errors.Join(errs...)
}

// UnusedViews returns the chain IDs whose unpacked layers are kept, and which no image and no
// sandbox needs.
func (s *Service) UnusedViews(ctx context.Context) ([]string, error) {
	views, err := s.store.Views(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	_, needed := s.fleet.Needed()
	for _, img := range stored {
		needed = append(needed, img.ChainID)
	}
	return slices.DeleteFunc(views, func(v string) bool { return slices.Contains(needed, v) }), nil
}

// Sweep removes what imports and builds left that were killed.
func (s *Service) Sweep(ctx context.Context) error {
	return errors.Join(s.store.SweepImages(ctx), s.sweepBuilds(ctx))
}

// sweepBuilds removes what builds of an earlier daemon left: contexts, whose clients lost
// their connection, and the view of an image.
func (s *Service) sweepBuilds(ctx context.Context) error {
	s.viewing.Lock()
	errs := []error{mount.RemoveView(s.options.View)}
	s.viewing.Unlock()
	list, err := s.store.ListImages(ctx)
	errs = append(errs, err)
	var left []string
	for _, i := range list {
		if strings.HasPrefix(i.Name, images.ContextPrefix) && i.CreatedAt.Before(s.began) {
			left = append(left, i.Key())
		}
	}
	return errors.Join(append(errs, s.removeImages(ctx, left...))...)
}
