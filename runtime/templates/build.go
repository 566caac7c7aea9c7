package templates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
)

// retryAfter is how long requests get the answer of a set-up that failed. Other inputs are
// built at once.
const retryAfter = time.Minute

// flight is a build under way. It ends when nobody waits for it any more.
type flight struct {
	target
	began  time.Time
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // once done is closed

	mu      sync.Mutex
	waiters map[*waiter]bool
	left    bool // nobody waits: it is ending
}

type waiter struct{ report func(images.BuildEvent) }

var errNobodyWaits = errors.New("nobody waits for the template any more")

// failure is why a build failed, and when.
type failure struct {
	err error
	at  time.Time
}

// build builds t, or waits for the build of t that is under way.
func (s *Service) build(ctx context.Context, t target, noCache bool, report func(images.BuildEvent)) error {
	w := &waiter{report}
	for {
		f := s.flightOf(t, noCache)
		joined := f.join(w)
		select {
		case <-f.done:
		case <-ctx.Done():
			f.leave(w)
			return sbxerr.Wrap(sbxerr.Canceled, "templates.build", context.Cause(ctx))
		}
		if joined {
			return f.err
		}
	}
}

// flightOf returns the build of t that is under way, and begins one where there is none.
func (s *Service) flightOf(t target, noCache bool) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[t.image]; f != nil {
		return f
	}
	ctx, cancel := context.WithCancelCause(peer.NewContext(s.ctx, peer.System))
	f := &flight{target: t, began: time.Now(), cancel: cancel, done: make(chan struct{}), waiters: map[*waiter]bool{}}
	s.flights[t.image] = f
	s.work.Go(func() {
		defer s.fleet.Busy()()
		defer cancel(nil)
		f.err = s.run(ctx, f, noCache)
		s.mu.Lock()
		delete(s.flights, t.image)
		s.mu.Unlock()
		close(f.done)
	})
	return f
}

// join counts w among those who wait. It reports false where the build is ending, for which
// nobody waited any more.
func (f *flight) join(w *waiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.left {
		f.waiters[w] = true
	}
	return !f.left
}

func (f *flight) leave(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiters, w)
	if f.left = len(f.waiters) == 0; f.left {
		f.cancel(errNobodyWaits)
	}
}

func (f *flight) report(e images.BuildEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.waiters {
		if w.report != nil {
			w.report(e)
		}
	}
}

// run builds the template of f and keeps how that went.
func (s *Service) run(ctx context.Context, f *flight, noCache bool) error {
	var log buildLog
	if _, err := s.ready(ctx, f.target); err == nil && !noCache { // since somebody looked
		return nil
	}
	made, err := s.make(ctx, f, noCache, &log)
	if ctx.Err() != nil { // by nobody's fault
		return sbxerr.Wrap(sbxerr.Canceled, "templates.build", context.Cause(ctx))
	}
	a := attempt{Key: f.key, Ended: time.Now(), Took: time.Since(f.began), Log: log.String()}
	if err != nil {
		err = failed(f.profile, err, log.tail())
		a.Error = err.Error()
	}
	s.mu.Lock()
	delete(s.failures, f.image)
	if err != nil {
		s.failures[f.image] = failure{err, time.Now()}
	}
	s.mu.Unlock()
	return errors.Join(err, s.keep(f.profile, a), s.tell(ctx, f, made.Image, a, err))
}

// failed is the answer to all who need a template whose set-up failed.
func failed(profile string, err error, tail string) error {
	remedy := fmt.Sprintf("look at the whole log: caisson template inspect %s; if it lacks a host, memory or time, the configuration gives it that: "+
		"setup.network.allow, or setup.profile; root builds it again with caisson template build %s", profile, profile)
	err = fmt.Errorf("the set-up of profile %q failed: %w", profile, err)
	if tail != "" {
		err = fmt.Errorf("%w; its last lines: %s", err, tail)
	}
	return sbxerr.WithRemedy(sbxerr.TemplateFailed, "templates.build", err, remedy)
}

func (s *Service) make(ctx context.Context, f *flight, noCache bool, log *buildLog) (images.Imported, error) {
	root, err := os.OpenRoot("/")
	if err != nil {
		return images.Imported{}, err
	}
	defer root.Close() // it was only read
	made, err := s.images.BuildPlanned(ctx, imageservice.Planned{
		Name: f.image, Plan: planOf(f.setup, f.base), Files: root, Sandbox: stepRequest(f.setup), Salt: f.key, NoCache: noCache,
	}, func(e images.BuildEvent) {
		log.add(e)
		f.report(e)
	})
	if err == nil {
		err = s.unchanged(ctx, f)
	}
	return made, err
}

// unchanged removes a template of files that changed while they were copied.
func (s *Service) unchanged(ctx context.Context, f *flight) error {
	s.contents.forget()
	now, err := s.targetOf(ctx, f.profile, f.setup, f.baseName)
	if err == nil && now.key != f.key {
		err = errors.New("its image or a file that it copies changed while it was built")
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, s.images.Remove(context.WithoutCancel(ctx), f.image))
}
