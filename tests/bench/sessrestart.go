package main

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// countUp counts in a file until it is ended, slowly: a hundred of them are no load.
const countUp = `i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 5; done`

// restart replaces the daemon as an upgrade does, under sandboxes whose commands count and under
// clients that call all the time.
func (s *suite) restart() {
	site, _ := s.fleetOf(fleetSize)
	list, err := site.List(s.t.Context(), &caissonv1.ListRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	boxes := list.Sandboxes
	jobs := make([]*caissonv1.Exec, len(boxes))
	for i, box := range boxes {
		if jobs[i], err = site.Start(s.t.Context(), box.Id, &caissonv1.ExecSpec{Args: []string{"sh", "-c", countUp}}); err != nil {
			s.t.Fatal(err)
		}
	}
	site.daemon.Kill(s.t) // this one would end its sandboxes
	site.daemon.Config = "sandboxes: {keep_on_exit: true}\n"
	site.daemon.Launch(s.t, site.flags...)
	var gaps times
	before := site.counts(s.t, boxes)
	for range adoptRounds {
		site.mustRemove(site.create().Id) // its engine serves: the daemon of an upgrade has run for long
		gaps = append(gaps, site.callDuring(s.t, boxes, func() {
			site.daemon.Stop(s.t)
			site.daemon.Launch(s.t, site.flags...)
			time.Sleep(settle)
		}))
	}
	for i, now := range site.counts(s.t, boxes) {
		if now <= before[i] {
			s.t.Errorf("the command of %s counted to %d, and to %d after %d restarts", boxes[i].Id, before[i], now, adoptRounds)
		}
	}
	for i, box := range boxes {
		if err := site.Kill(s.t.Context(), box.Id, jobs[i].Id, syscall.SIGKILL, false); err != nil {
			s.t.Error(err)
		}
	}
	site.daemon.Stop(s.t)
	site.daemon.Config = ""
	site.daemon.Launch(s.t, site.flags...) // and ends them with itself
	sum := gaps.summary()
	s.r.Sessions = append(s.r.Sessions, Section{
		Name: "restart", Runs: []Run{{Name: "caisson", What: "longest time without an answer to one of 8 clients while the daemon is replaced", Took: sum}},
		Figures: []Figure{{"sandboxes", float64(len(boxes)), ""}},
	})
	s.r.target(atMost("longest time without an answer while the daemon is replaced under 100 sandboxes", sum.P99, 2000, "ms"))
}

// counts are what the commands of boxes have counted to.
func (s *site) counts(t *driver, boxes []*caissonv1.Sandbox) []int {
	counts := make([]int, len(boxes))
	for i, box := range boxes {
		var out strings.Builder
		if _, err := s.Exec(t.Context(), box.Id, &caissonv1.ExecSpec{Args: []string{"sh", "-c", "until [ -s /tmp/count ]; do :; done; cat /tmp/count"}}, api.IO{Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		var err error
		if counts[i], err = strconv.Atoi(strings.TrimSpace(out.String())); err != nil {
			t.Fatal(err)
		}
	}
	return counts
}

// callDuring has clients run commands while act lasts, and returns the longest time that one of
// them was without an answer. A call that fails is made again, as its error says that it may be.
func (s *site) callDuring(t *driver, boxes []*caissonv1.Sandbox, act func()) time.Duration {
	ctx, end := context.WithCancel(t.Context())
	var mu sync.Mutex
	var worst time.Duration
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			last := time.Now()
			for i := n; ctx.Err() == nil; i++ {
				_, err := s.Exec(t.Context(), boxes[i%len(boxes)].Id, &caissonv1.ExecSpec{Args: []string{"true"}}, api.IO{})
				mu.Lock()
				worst = max(worst, time.Since(last))
				mu.Unlock()
				if err == nil {
					last = time.Now()
				} else {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	time.Sleep(settle)
	act()
	end()
	wg.Wait()
	return worst
}
