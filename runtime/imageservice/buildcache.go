package imageservice

import (
	"context"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/runtime/images"
)

// cachedSteps is how many states after steps are kept of each user, the newest.
const cachedSteps = 64

// trimCache removes the oldest states after steps of the caller.
func (b *build) trimCache(ctx context.Context) error {
	list, err := b.service.store.ListImages(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(i images.Stored) bool {
		return i.Owner != b.grant.Owner().UID || !strings.HasPrefix(i.Name, images.CachePrefix)
	})
	slices.SortFunc(list, func(a, b images.Stored) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if len(list) <= cachedSteps {
		return nil
	}
	var old []string
	for _, i := range list[cachedSteps:] {
		old = append(old, i.Key())
	}
	return b.service.removeImages(ctx, old...)
}
