package runtime

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// cachedSteps is how many states after steps are kept of each user, the newest.
const cachedSteps = 64

// trimCache removes the oldest states after steps of the caller.
func (m *Manager) trimCache(ctx context.Context, g peer.Grant) error {
	list, err := m.images.ListImages(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(i images.Stored) bool {
		return i.Owner != g.Owner().UID || !strings.HasPrefix(i.Name, images.CachePrefix)
	})
	slices.SortFunc(list, func(a, b images.Stored) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if len(list) <= cachedSteps {
		return nil
	}
	for _, i := range list[cachedSteps:] {
		if err := m.images.RemoveImage(ctx, i.Key()); err != nil {
			return err
		}
	}
	return m.releaseViews(ctx)
}

// sweepBuilds removes what builds of an earlier daemon left: contexts, whose clients lost
// their connection, and the view of an image.
func (m *Manager) sweepBuilds(ctx context.Context) error {
	m.viewing.Lock()
	errs := []error{mount.RemoveView(m.paths.view())}
	m.viewing.Unlock()
	list, err := m.images.ListImages(ctx)
	errs = append(errs, err)
	swept := false
	for _, i := range list {
		if strings.HasPrefix(i.Name, images.ContextPrefix) && i.CreatedAt.Before(m.began) {
			swept = true
			errs = append(errs, m.images.RemoveImage(ctx, i.Key()))
		}
	}
	if swept {
		errs = append(errs, m.releaseViews(ctx))
	}
	return errors.Join(errs...)
}
