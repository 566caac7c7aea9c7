package snapshots

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/runtime/plan"
)

// MaxForks is how many sandboxes one call of Fork may ask for.
const MaxForks = 64

// forksAtOnce bounds the sandboxes that one call makes at a time, so that it does not fill the
// queue of all callers.
const forksAtOnce = 4

// Fork is a sandbox that was made with the files of another, or why it was not.
type Fork struct {
	ID  string
	Err error
}

// Fork makes sandboxes with the files and settings of one. Each of them succeeds or fails alone.
func (s *Service) Fork(ctx context.Context, ref string, count int) ([]Fork, error) {
	defer s.fleet.Busy()()
	if count < 1 || count > MaxForks {
		return nil, plan.Invalid("fork %d times: give 1 to %d", count, MaxForks)
	}
	snapshot, err := s.Create(ctx, ref, "fork-"+strings.ToLower(rand.Text()), "")
	if err != nil {
		return nil, err
	}
	forks := make([]Fork, count)
	slots := make(chan struct{}, forksAtOnce)
	var all sync.WaitGroup
	for i := range forks {
		slots <- struct{}{}
		all.Go(func() {
			forks[i].ID, forks[i].Err = s.fleet.Begin(ctx, plan.CreateRequest{From: snapshot.Name})
			<-slots
		})
	}
	all.Wait()
	ctx = context.WithoutCancel(ctx)
	if err := s.Remove(ctx, snapshot.Name); err != nil { // nobody is told of the forks
		errs := []error{err}
		for _, f := range forks {
			if f.Err == nil {
				errs = append(errs, s.fleet.End(ctx, f.ID))
			}
		}
		return nil, errors.Join(errs...)
	}
	return forks, nil
}
