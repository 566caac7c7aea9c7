package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// clients is how many ask at the same time.
const clients = 8

// sustained compares how many sandboxes a second this machine makes, uses and
// removes: with the daemon, and with ctr against the same containerd. The two
// take turns, so that what else the machine does weighs on both.
func (s *suite) sustained() {
	site, st := s.withPool(), s.plain()
	ctr := st.ctr()
	const turns = 2
	var ours, theirs float64
	var took times
	for range turns {
		site.awaitFull()
		rate, series := s.underLoad(s.length/turns, func(ctx context.Context, _ int) error { return site.lifeOf(ctx) })
		ours, took = ours+rate/turns, append(took, series...)
		if ctr.skipped != "" {
			continue
		}
		var n atomic.Int64
		rate, _ = s.underLoad(s.length/turns, func(context.Context, int) error {
			_, err := timed(ctr.command(int(n.Add(1)) + loadRounds))
			return err
		})
		theirs += rate / turns
	}
	site.awaitFull()
	sec := Section{
		Name:    "sustained",
		Runs:    []Run{{Name: "caisson", What: "create, true, remove by 8 clients: one whole life", Took: took.summary()}, {Name: "ctr", What: ctr.what, Skipped: ctr.skipped}},
		Figures: []Figure{{"caisson", round(ours), "sandboxes/s"}, {"ctr", round(theirs), "sandboxes/s"}},
		Trace:   s.lifeTrace(),
	}
	s.r.Sessions = append(s.r.Sessions, sec)
	if theirs > 0 {
		s.r.target(atLeast("sustained load, to ctr run", round(ours/theirs), 2, ""))
	}
}

// loadRounds keeps ctr's names apart from those of single rounds.
const loadRounds = 1_000_000

// underLoad lets the clients do one thing after another for so long, and tells
// how many a second were done.
func (s *suite) underLoad(length time.Duration, do func(context.Context, int) error) (rate float64, took times) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range clients {
		wg.Go(func() {
			for time.Since(begin) < length && s.t.ctx.Err() == nil {
				start := time.Now()
				err := do(s.t.Context(), i)
				d := time.Since(start)
				mu.Lock()
				if err != nil {
					s.t.Error(err)
				}
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return float64(len(took)) / time.Since(begin).Seconds(), took
}

// lifeOf makes a sandbox, uses it once and removes it.
func (s *site) lifeOf(ctx context.Context) error {
	box, err := s.Create(ctx, &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{}})
	if err != nil {
		return err
	}
	if _, err := s.execTrue(ctx, box.Id); err != nil {
		return err
	}
	return s.remove(ctx, box.Id)
}

// lifeTrace is the stages of creations that no pool helps, one after another.
func (s *suite) lifeTrace() []Stage {
	site := s.plainSite()
	c := cold{stages: map[string][]time.Duration{}}
	for range 10 {
		r, err := site.Run(s.t.Context(), &caissonv1.RunSpec{
			Sandbox: &caissonv1.SandboxSpec{}, Exec: &caissonv1.ExecSpec{Args: []string{"/bin/true"}},
		}, api.IO{})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, st := range r.Stages {
			c.note(st.Name, st.Duration.AsDuration())
		}
	}
	var stages []Stage
	for _, name := range c.names {
		stages = append(stages, Stage{"cold: " + name, summarize(c.stages[name])})
	}
	return stages
}
