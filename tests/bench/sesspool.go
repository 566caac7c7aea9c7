package main

import (
	"os/exec"
	"sync"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// fromPool measures from the request for a sandbox to the end of its first
// command. The pool is full before each round.
func (s *suite) fromPool() {
	site := s.withPool()
	var total, made, ran, removed times
	before := site.pool()
	for range s.rounds {
		site.awaitFull()
		begin := time.Now()
		box := site.create()
		created := time.Now()
		if _, err := site.execTrue(s.t.Context(), box.Id); err != nil {
			s.t.Fatal(err)
		}
		ended := time.Now()
		site.mustRemove(box.Id)
		total, made, ran = append(total, ended.Sub(begin)), append(made, created.Sub(begin)), append(ran, ended.Sub(created))
		removed = append(removed, time.Since(ended))
	}
	after := site.pool()
	sec := Section{
		Name: "pool",
		Runs: []Run{{Name: "caisson", What: "create to the end of /bin/true, from the pool, over the API", Took: total.summary()}},
		Figures: []Figure{
			{"hits of the pool", float64(after.Hits - before.Hits), ""}, {"misses", float64(after.Misses - before.Misses), ""},
			{"making of one for the pool", milliseconds(after.Refill.AsDuration()), "ms"},
		},
		Trace: []Stage{{"create", *made.summary()}, {"first command", *ran.summary()}, {"remove, after that", *removed.summary()}},
	}
	s.r.Sessions = append(s.r.Sessions, sec)
	s.r.target(atMost("create to first command, from the pool, p50", total.summary().P50, 5, "ms"))
	s.r.target(atMost("create to first command, from the pool, p99", total.summary().P99, 15, "ms"))
}

// runFromPool measures the whole process of caisson run, beside the cold runs of
// others.
func (s *suite) runFromPool() {
	site, st := s.withPool(), s.plain()
	all := []contender{
		{name: "caisson", what: "caisson run -- true, from the pool", command: func(int) *exec.Cmd { return site.daemon.Command(s.t.Context(), "run", "--", "true") }},
		st.docker(), st.podman(), st.bwrap(),
	}
	runs := st.sideBySide(all, s.rounds, func() { site.awaitFull() })
	s.r.Sessions = append(s.r.Sessions, Section{Name: "run-pool", Runs: runs})
	s.r.target(atMost("caisson run from the pool, whole process, p50", runs[0].Took.P50, 12, "ms"))
	s.r.targetRatio("caisson run from the pool, to docker run", runs, "docker", round(1.0/15))
}

// apart is the time between two calls of somebody who reads their output.
const apart = 300 * time.Millisecond

// runByDefault measures the whole process of caisson run where nothing is configured, from
// the tenth call on.
func (s *suite) runByDefault() {
	site, st := s.byDefault(), s.plain()
	all := []contender{
		{name: "caisson", what: "caisson run -- true, nothing configured", command: func(int) *exec.Cmd { return site.daemon.Command(s.t.Context(), "run", "--", "true") }},
		st.bwrap(),
	}
	pause := func() { time.Sleep(apart) }
	st.sideBySide(all, 9, pause)
	runs := st.sideBySide(all, s.rounds, pause)
	s.r.Sessions = append(s.r.Sessions, Section{Name: "run-default", Runs: runs})
	s.r.targetRatio("caisson run by default, from the tenth call on, to bwrap", runs, "bwrap", 1.5)
}

// The burst.
const (
	burstSize   = 100
	burstRounds = 3
)

// burst asks for many sandboxes at once and runs one command in each.
func (s *suite) burst() {
	site := s.withPool()
	var first, refills times
	failures := 0
	for range burstRounds {
		site.awaitFull()
		took, failed := site.burstOnce()
		first, failures = append(first, took...), failures+failed
		refills = append(refills, site.awaitFull())
	}
	sum := first.summary()
	s.r.Sessions = append(s.r.Sessions, Section{
		Name: "burst", Runs: []Run{{Name: "caisson", What: "100 at once: from the request to the end of the first command", Took: sum}},
		Figures: []Figure{{"failures", float64(failures), ""}},
		Trace:   []Stage{{"until the pool is full again, all removed", *refills.summary()}},
	})
	s.r.target(atMost("burst of 100, p95 to first command", sum.P95, 2500, "ms"))
	s.r.target(atMost("burst of 100, failures", float64(failures), 0, ""))
}

func (s *site) burstOnce() (took times, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var ids []string
	begin := time.Now()
	for range burstSize {
		wg.Go(func() {
			box, err := s.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{}})
			if err == nil {
				_, err = s.execTrue(s.t.Context(), box.Id)
			}
			d := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			if box != nil {
				ids = append(ids, box.Id)
			}
			if err != nil {
				failed++
				s.t.Logf("burst: %v", err)
				return
			}
			took = append(took, d)
		})
	}
	wg.Wait()
	s.removeAll(ids)
	return took, failed
}

// removeAll removes sandboxes by several clients, as a harness would.
func (s *site) removeAll(ids []string) {
	queue := make(chan string, len(ids))
	for _, id := range ids {
		queue <- id
	}
	close(queue)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for id := range queue {
				if err := s.remove(s.t.Context(), id); err != nil {
					mu.Lock()
					s.t.Error(err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}
