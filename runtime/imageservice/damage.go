package imageservice

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/base"
	"github.com/caisson-run/caisson/runtime/images"
)

// A damaged image disturbs nobody but who asks for it. The embedded one is made again,
// at the start and when a request meets it.

// EnsureBase makes the embedded image current and whole, and logs which others are
// damaged.
func (s *Service) EnsureBase(ctx context.Context) error {
	if err := s.ensureBase(ctx); err != nil {
		return err
	}
	list, err := s.store.ListImages(ctx)
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.Damaged != "" {
			s.options.Log.Warn("an image is damaged: import it again, or remove it", "image", i.Key(), "reason", i.Damaged)
		}
	}
	return nil
}

func (s *Service) ensureBase(ctx context.Context) error {
	s.naming.Lock() // one at a time, and no import takes the name meanwhile
	defer s.naming.Unlock()
	want, err := base.Digest(ctx)
	if err != nil {
		return err
	}
	img, err := s.store.GetImage(ctx, base.Name)
	if err == nil && img.Digest == want.String() {
		_, err = s.store.Layers(ctx, img)
		if err == nil {
			return nil
		}
	}
	switch {
	case errors.Is(err, sbxerr.ImageDamaged):
		s.options.Log.Warn("make the image base again: it is damaged", "reason", err)
	case err != nil && !errors.Is(err, sbxerr.ImageNotFound):
		return err
	}
	defer debug.FreeOSMemory() // Go would keep a heap that is many times the daemon's own
	_, err = base.Build(ctx, s.store)
	return err
}

// getImage finds an image by its stored name. The image base is made again if it is
// absent, as after its removal, or damaged.
func (s *Service) getImage(ctx context.Context, key string) (images.Stored, error) {
	img, err := s.store.GetImage(ctx, key)
	if key != base.Name || !errors.Is(err, sbxerr.ImageNotFound) && !errors.Is(err, sbxerr.ImageDamaged) {
		return img, err
	}
	if err := s.ensureBase(ctx); err != nil {
		return img, err
	}
	return s.store.GetImage(ctx, key)
}

// Layers returns the directories of an image's layers, the topmost first.
func (s *Service) Layers(ctx context.Context, img images.Stored) ([]string, error) {
	dirs, err := s.store.Layers(ctx, img)
	if img.Key() != base.Name || !errors.Is(err, sbxerr.ImageDamaged) {
		return dirs, err
	}
	if err := s.ensureBase(ctx); err != nil {
		return nil, err
	}
	return s.store.Layers(ctx, img)
}
