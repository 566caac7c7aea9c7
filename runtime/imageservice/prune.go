package imageservice

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

// used records a use of img, for sandboxes are made of it. The record is the time of a file:
// images are used far more often than removed.
func (s *Service) used(img images.Stored, err error) (images.Stored, error) {
	if err != nil || time.Since(s.lastUseOf(img)) < useGrain {
		return img, err
	}
	if err := os.WriteFile(s.usePath(img), nil, 0o600); err != nil { // a full disk stops no sandbox
		s.options.Log.Warn("record the use of an image", "image", img.Name, "err", err)
	}
	return img, nil
}

// lastUseOf is when img was last used, or else stored.
func (s *Service) lastUseOf(img images.Stored) time.Time {
	info, err := os.Stat(s.usePath(img))
	if err != nil || info.ModTime().Before(img.CreatedAt) {
		return img.CreatedAt
	}
	return info.ModTime()
}

func (s *Service) usePath(img images.Stored) string {
	return filepath.Join(s.options.Uses, strings.ReplaceAll(img.Digest, ":", "-"))
}

// StartPruning removes images as the policy says, until ctx ends: after each that is stored,
// and each minute, for other things fill the disk as well.
func (s *Service) StartPruning(ctx context.Context) {
	ctx = peer.NewContext(ctx, peer.System)
	go func() {
		tick := time.NewTicker(spaceLook)
		defer tick.Stop()
		low := false
		for {
			if is := s.pruneToPolicy(ctx); is != low {
				low = is
				s.options.Log.Warn("room on the disk of images", "enough", !low)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-s.stored:
			}
		}
	}()
}

// watchSpace has the room looked at now.
func (s *Service) watchSpace() {
	select {
	case s.stored <- struct{}{}:
	default: // it is looked at soon
	}
}

// pruneToPolicy removes images until enough is free. It reports whether too little is.
func (s *Service) pruneToPolicy(ctx context.Context) (low bool) {
	policy := s.settings().Prune
	if policy.MinFree == nil || !s.isLow(policy) {
		return false
	}
	list, err := s.prunable(ctx, policy)
	if err != nil {
		s.options.Log.Warn("list the images that may go", "err", err)
		return true
	}
	for _, img := range list {
		if !s.isLow(policy) {
			return false
		}
		if err := s.Remove(ctx, img.Key()); err != nil { // somebody uses it since
			s.options.Log.Warn("remove an image for room", "image", img.Name, "err", err)
			continue
		}
		s.options.Log.Info("removed an image for room", "image", img.Name, "owner", img.Owner, "digest", img.Digest, "last_use", s.lastUseOf(img))
		_ = owndir.Remove(s.usePath(img)) // absent where it was never used
	}
	return s.isLow(policy)
}

// isLow reports whether less is free than p wants. A disk that cannot be asked is not low.
func (s *Service) isLow(p PrunePolicy) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(s.options.Root, &st); err != nil {
		s.options.Log.Warn("look at the disk of images", "err", err)
		return false
	}
	return int64(st.Bavail)*st.Bsize < p.MinFree(int64(st.Blocks)*st.Bsize)
}

// prunable are the images of all users that nothing needs and nobody used lately, the least
// recently used first.
func (s *Service) prunable(ctx context.Context, p PrunePolicy) ([]images.Stored, error) {
	list, err := s.store.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	needed := s.neededImages()
	list = slices.DeleteFunc(list, func(i images.Stored) bool {
		return needed[i.Key()] || time.Since(s.lastUseOf(i)) < p.UnusedFor
	})
	slices.SortFunc(list, func(a, b images.Stored) int {
		return cmp.Or(s.lastUseOf(a).Compare(s.lastUseOf(b)), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}
