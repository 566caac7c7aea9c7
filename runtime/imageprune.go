package runtime

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

// PrunePolicy says when images go that nothing needs.
type PrunePolicy struct {
	// MinFree is how many bytes are to be free on a disk of size bytes. 0: no images go.
	MinFree   func(size int64) int64
	UnusedFor time.Duration // an image that was stored or used within this time stays
}

const (
	spaceLook = time.Minute // between two looks at the disk
	useGrain  = time.Hour   // a use within this time of the last one is not recorded
)

// usedImage records a use of img, for sandboxes are made of it. The record is the time of a file:
// images are used far more often than removed.
func (h *host) usedImage(img images.Stored, err error) (images.Stored, error) {
	if err != nil || time.Since(h.lastUseOf(img)) < useGrain {
		return img, err
	}
	if err := os.WriteFile(h.usePath(img), nil, 0o600); err != nil { // a full disk stops no sandbox
		h.log.Warn("record the use of an image", "image", img.Name, "err", err)
	}
	return img, nil
}

// lastUseOf is when img was last used, or else stored.
func (h *host) lastUseOf(img images.Stored) time.Time {
	info, err := os.Stat(h.usePath(img))
	if err != nil || info.ModTime().Before(img.CreatedAt) {
		return img.CreatedAt
	}
	return info.ModTime()
}

func (h *host) usePath(img images.Stored) string {
	return filepath.Join(h.paths.uses(), strings.ReplaceAll(img.Digest, ":", "-"))
}

// StartPruning removes images as the policy says, until ctx ends: after each that is stored,
// and each minute, for other things fill the disk as well.
func (m *Manager) StartPruning(ctx context.Context) {
	ctx = peer.NewContext(ctx, peer.System)
	go func() {
		tick := time.NewTicker(spaceLook)
		defer tick.Stop()
		low := false
		for {
			if is := m.pruneToPolicy(ctx); is != low {
				low = is
				m.log.Warn("room on the disk of images", "enough", !low)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-m.stored:
			}
		}
	}()
}

// watchSpace has the room looked at now.
func (m *Manager) watchSpace() {
	select {
	case m.stored <- struct{}{}:
	default: // it is looked at soon
	}
}

// pruneToPolicy removes images until enough is free. It reports whether too little is.
func (m *Manager) pruneToPolicy(ctx context.Context) (low bool) {
	policy := m.settings().Prune
	if policy.MinFree == nil || !m.isLow(policy) {
		return false
	}
	list, err := m.prunable(ctx, policy)
	if err != nil {
		m.log.Warn("list the images that may go", "err", err)
		return true
	}
	for _, img := range list {
		if !m.isLow(policy) {
			return false
		}
		if err := m.RemoveImage(ctx, img.Key()); err != nil { // somebody uses it since
			m.log.Warn("remove an image for room", "image", img.Name, "err", err)
			continue
		}
		m.log.Info("removed an image for room", "image", img.Name, "owner", img.Owner, "digest", img.Digest, "last_use", m.lastUseOf(img))
		_ = owndir.Remove(m.usePath(img)) // absent where it was never used
	}
	return m.isLow(policy)
}

// isLow reports whether less is free than p wants. A disk that cannot be asked is not low.
func (h *host) isLow(p PrunePolicy) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(h.paths.root, &st); err != nil {
		h.log.Warn("look at the disk of images", "err", err)
		return false
	}
	return int64(st.Bavail)*st.Bsize < p.MinFree(int64(st.Blocks)*st.Bsize)
}

// prunable are the images of all users that nothing needs and nobody used lately, the least
// recently used first.
func (m *Manager) prunable(ctx context.Context, p PrunePolicy) ([]images.Stored, error) {
	list, err := m.images.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	needed := m.neededImages()
	list = slices.DeleteFunc(list, func(i images.Stored) bool {
		return needed[i.Key()] || time.Since(m.lastUseOf(i)) < p.UnusedFor
	})
	slices.SortFunc(list, func(a, b images.Stored) int {
		return cmp.Or(m.lastUseOf(a).Compare(m.lastUseOf(b)), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}
