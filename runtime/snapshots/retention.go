package snapshots

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/runtime/events"
)

// Retention bounds the snapshots of each user that have no name of their own. Zero is no bound.
type Retention struct {
	Most  int
	Bytes int64
	For   time.Duration
}

// Prune removes what is past the retention, the oldest first: never a snapshot that somebody named,
// nor one that a sandbox began with. What cannot be removed stays until the next time.
func (s *Service) Prune(ctx context.Context) {
	if err := s.prune(ctx); err != nil {
		s.log.Error("remove snapshots past their retention", "err", err)
	}
}

func (s *Service) prune(ctx context.Context) error {
	most := s.retention()
	if most == (Retention{}) {
		return nil
	}
	all, err := s.store.List()
	if err != nil {
		return err
	}
	used := map[Key]bool{}
	s.fleet.Origins(func(owner uint32, ref string) {
		if k, err := ParseKey(ref, owner); err == nil {
			used[k] = true
		}
	})
	count, bytes := map[uint32]int{}, map[uint32]int64{}
	for _, i := range all {
		if !i.Unnamed {
			continue
		}
		count[i.Owner]++
		bytes[i.Owner] += i.UsedBytes
		if used[i.Key] || !most.exceeded(count[i.Owner], bytes[i.Owner], time.Since(i.CreatedAt)) {
			continue
		}
		if err := s.store.Remove(i.Key); err != nil {
			return err
		}
		if err := s.tell(ctx, events.SnapshotRemoved, i.Key, "expired"); err != nil {
			return err
		}
	}
	return nil
}

// exceeded reports whether a snapshot goes that is the count-th newest, with so many bytes up to it,
// and is so old.
func (r Retention) exceeded(count int, bytes int64, age time.Duration) bool {
	return r.Most > 0 && count > r.Most || r.Bytes > 0 && bytes > r.Bytes || r.For > 0 && age >= r.For
}
