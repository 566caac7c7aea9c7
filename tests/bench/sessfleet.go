package main

import (
	"sync"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Sizes of the fleet of idle sandboxes.
const (
	fleetSize = 100
	fleetMax  = 500
)

// fleetOf returns a daemon with n idle sandboxes at least.
func (s *suite) fleetOf(n int) (*site, times) {
	if s.fleet == nil {
		s.fleet = startSite(s.t, "ids: {blocks: 520}\n")
	}
	list, err := s.fleet.List(s.t.Context(), &caissonv1.ListRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	queue := make(chan struct{}, n)
	for range n - len(list.Sandboxes) {
		queue <- struct{}{}
	}
	close(queue)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var took times
	for range clients {
		wg.Go(func() {
			for range queue {
				begin := time.Now()
				_, err := s.fleet.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{}})
				d := time.Since(begin)
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
	if s.t.failed {
		s.t.Fatalf("%d idle sandboxes could not be made", n)
	}
	return s.fleet, took
}

// memory adds up what PID 1 of each sandbox holds, and the shims that they
// share.
func (s *suite) memory() {
	site, _ := s.fleetOf(fleetSize)
	time.Sleep(settle)
	list, err := site.List(s.t.Context(), &caissonv1.ListRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	var inits, shims float64
	seen := map[int]bool{}
	for _, box := range list.Sandboxes {
		pid := int(box.Pid)
		inits += memoryOf(s.t, pid).PSS
		if shim := parentOf(s.t, pid); !seen[shim] {
			seen[shim] = true
			shims += memoryOf(s.t, shim).PSS
		}
	}
	n := float64(len(list.Sandboxes))
	each := round((inits + shims) / n)
	s.r.Sessions = append(s.r.Sessions, Section{Name: "memory", Figures: []Figure{
		{"sandboxes", n, ""}, {"shims", float64(len(seen)), ""},
		{"PID 1, each", round(inits / n), "MB"}, {"share of the shims, each", round(shims / n), "MB"},
		{"caissond", memoryOf(s.t, site.daemon.PID()).PSS, "MB"},
	}})
	s.r.target(atMost("memory for each idle sandbox (PSS)", each, 5, "MB"))
}

// adopt measures the re-adoption of some sandboxes beside a start without any.
func (s *suite) adopt() {
	site, _ := s.fleetOf(fleetSize)
	want := site.running(s.t)
	sum := site.adoptions(s.t)
	var bare times
	_, bare = starts(s.t, adoptRounds)
	s.r.Sessions = append(s.r.Sessions, Section{
		Name: "adopt", Runs: []Run{{Name: "caisson", What: whatAdoption, Took: sum}},
		Figures: []Figure{{"sandboxes", float64(want), ""}},
		Trace:   []Stage{{"for comparison: start without sandboxes", *bare.summary()}},
	})
	s.r.target(atMost("re-adoption of 100 sandboxes after kill -9", sum.P50, 1000, "ms"))
}

const (
	adoptRounds  = 5
	adoptTimeout = 30 * time.Second
	whatAdoption = "from the start of the daemon until all sandboxes are running"
)

// adoptions kills the daemon and measures from the start of the next one until it
// answers that every sandbox is running.
func (s *site) adoptions(t *driver) *Summary {
	want := s.running(t)
	var took times
	for range adoptRounds {
		s.daemon.Kill(t)
		ready := make(chan time.Duration, 1)
		begin := time.Now()
		go func() { ready <- untilReady(s.daemon.Socket) }()
		s.daemon.Launch(t, s.flags...)
		d := <-ready
		for got := s.running(t); got != want; got = s.running(t) {
			if d = time.Since(begin); d > adoptTimeout {
				t.Fatalf("%d of %d sandboxes live after kill -9", got, want)
			}
			time.Sleep(50 * time.Millisecond) // nothing announces it, and to list 500 takes its time
		}
		took = append(took, d)
		time.Sleep(settle) // the engine finds its tasks again
	}
	return took.summary()
}

func (s *site) running(t *driver) int {
	list, err := s.List(t.Context(), &caissonv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, box := range list.Sandboxes {
		if box.State == "running" {
			n++
		}
	}
	return n
}

// many measures short commands beside many idle sandboxes.
func (s *suite) many() {
	begin := time.Now()
	site, took := s.fleetOf(fleetMax)
	made := time.Since(begin)
	time.Sleep(settle)
	list, err := site.List(s.t.Context(), &caissonv1.ListRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	series := site.execSeries(list.Sandboxes[len(list.Sandboxes)/2].Id, s.rounds*execRounds)
	runs := []Run{{Name: "caisson", What: "exec /bin/true beside 500 idle sandboxes", Took: series.total.summary()}}
	if len(took) > 0 {
		runs = append(runs, Run{Name: "create", What: "making of those that were missing, 8 at a time", Took: took.summary()})
	}
	stats := site.stats(s.t)
	adopted := site.adoptions(s.t)
	runs = append(runs, Run{Name: "stats", What: "the call Stats, of all sandboxes, once", Took: stats}, Run{Name: "adopt", What: whatAdoption, Took: adopted})
	s.r.Sessions = append(s.r.Sessions, Section{
		Name: "many", Runs: runs,
		Figures: []Figure{
			{"sandboxes", float64(site.running(s.t)), ""}, {"made in", round(made.Seconds()), "s"},
			{"caissond", memoryOf(s.t, site.daemon.PID()).PSS, "MB"},
		},
		Trace: series.trace(),
	})
	s.r.target(atLeast("idle sandboxes at once", float64(site.running(s.t)), fleetMax, ""))
	s.r.target(atMost("exec beside 500 idle sandboxes, p50", series.total.summary().P50, 2, "ms"))
	s.r.target(atMost("Stats of 500 idle sandboxes, p50", stats.P50, 50, "ms"))
	s.r.target(atMost("re-adoption of 500 sandboxes after kill -9", adopted.P50, 1500, "ms"))
}

// stats measures the call that tells what each sandbox uses.
func (s *site) stats(t *driver) *Summary {
	var took times
	for range statsRounds {
		begin := time.Now()
		if err := s.Stats(t.Context(), &caissonv1.StatsRequest{NoStream: true}, func(*caissonv1.StatsResponse) error { return nil }); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	return took.summary()
}

const statsRounds = 50
