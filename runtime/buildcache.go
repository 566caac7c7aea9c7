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
	var old []string
	for _, i := range list[cachedSteps:] {
		old = append(old, i.Key())
	}
	return m.removeImages(ctx, old...)
}

// sweepBuilds removes what builds of an earlier daemon left: contexts, whose clients lost
// their connection, and the view of an image.
func (m *Manager) sweepBuilds(ctx context.Context) error {
	m.viewing.Lock()
	errs := []error{mount.RemoveView(m.paths.view())}
	m.viewing.Unlock()
	list, err := m.images.ListImages(ctx)
	errs = append(errs, err)
	var left []string
	for _, i := range list {
		if strings.HasPrefix(i.Name, images.ContextPrefix) && i.CreatedAt.Before(m.began) {
			left = append(left, i.Key())
		}
	}
	return errors.Join(append(errs, m.removeImages(ctx, left...))...)
}
