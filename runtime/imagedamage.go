package runtime

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
func (m *Manager) EnsureBase(ctx context.Context) error {
	if err := m.ensureBase(ctx); err != nil {
		return err
	}
	list, err := m.images.ListImages(ctx)
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.Damaged != "" {
			m.log.Warn("an image is damaged: import it again, or remove it", "image", i.Key(), "reason", i.Damaged)
		}
	}
	return nil
}

func (m *Manager) ensureBase(ctx context.Context) error {
	m.naming.Lock() // one at a time, and no import takes the name meanwhile
	defer m.naming.Unlock()
	want, err := base.Digest(ctx)
	if err != nil {
		return err
	}
	img, err := m.images.GetImage(ctx, base.Name)
	if err == nil && img.Digest == want.String() {
		_, err = m.images.Layers(ctx, img)
		if err == nil {
			return nil
		}
	}
	switch {
	case errors.Is(err, sbxerr.ImageDamaged):
		m.log.Warn("make the image base again: it is damaged", "reason", err)
	case err != nil && !errors.Is(err, sbxerr.ImageNotFound):
		return err
	}
	defer debug.FreeOSMemory() // Go would keep a heap that is many times the daemon's own
	_, err = base.Build(ctx, m.images)
	return err
}

// getImage finds an image by its stored name. The image base is made again if it is
// absent, as after its removal, or damaged.
func (m *Manager) getImage(ctx context.Context, key string) (images.Stored, error) {
	img, err := m.images.GetImage(ctx, key)
	if key != base.Name || !errors.Is(err, sbxerr.ImageNotFound) && !errors.Is(err, sbxerr.ImageDamaged) {
		return img, err
	}
	if err := m.ensureBase(ctx); err != nil {
		return img, err
	}
	return m.images.GetImage(ctx, key)
}

// layers returns the directories of an image's layers, the topmost first.
func (m *Manager) layers(ctx context.Context, img images.Stored) ([]string, error) {
	dirs, err := m.images.Layers(ctx, img)
	if img.Key() != base.Name || !errors.Is(err, sbxerr.ImageDamaged) {
		return dirs, err
	}
	if err := m.ensureBase(ctx); err != nil {
		return nil, err
	}
	return m.images.Layers(ctx, img)
}
