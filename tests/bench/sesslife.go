package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// life measures the end of sandboxes, and what directories of the host add to their beginning.
func (s *suite) life() {
	sec := Section{Name: "life"}
	stop := s.stops()
	sec.Runs = append(sec.Runs, Run{Name: "caisson", What: "stop of a sandbox whose command obeys TERM", Took: stop})
	s.r.target(atMost("stop of a command that obeys TERM, p50", stop.P50, 50, "ms"))

	dir := s.emptyDir()
	workspace := &caissonv1.SandboxSpec{Workspace: &caissonv1.Workspace{Dir: dir}}
	mounted := &caissonv1.SandboxSpec{Mounts: []*caissonv1.Mount{{Type: "bind", Source: dir, Target: "/data"}}}
	pool := s.withPool()
	ready := pool.creations(s.rounds, func() { pool.awaitFull() }, &caissonv1.SandboxSpec{}, workspace)
	cold := s.plainSite().creations(s.rounds, func() {}, &caissonv1.SandboxSpec{}, workspace, mounted)
	sec.Trace = append(sec.Trace, Stage{"create, from the pool", ready[0]}, Stage{"with a workspace", ready[1]},
		Stage{"create, cold", cold[0]}, Stage{"with a workspace", cold[1]}, Stage{"with a bind mount", cold[2]})
	s.r.target(atMost("a workspace adds, from the pool, p50", round(ready[1].P50-ready[0].P50), 5, "ms"))
	s.r.target(atMost("a workspace adds, cold, p50", round(cold[1].P50-cold[0].P50), 5, "ms"))
	s.r.target(atMost("a bind mount adds, cold, p50", round(cold[2].P50-cold[0].P50), 5, "ms"))

	orphans := s.orphans()
	sec.Trace = append(sec.Trace, Stage{"ten orphans, from the start of the daemon until nothing is left", *orphans})
	s.r.target(atMost("ten orphans are cleaned, p50", orphans.P50, 1000, "ms"))
	s.r.Sessions = append(s.r.Sessions, sec)
}

// stops measures Stop of sandboxes in which a command runs.
func (s *suite) stops() *Summary {
	site := s.withPool()
	var took times
	for range s.rounds {
		site.awaitFull()
		box := site.create()
		if _, err := site.Start(s.t.Context(), box.Id, &caissonv1.ExecSpec{Args: []string{"sleep", "1000"}}); err != nil {
			s.t.Fatal(err)
		}
		begin := time.Now()
		if _, err := site.Stop(s.t.Context(), box.Id, nil); err != nil {
			s.t.Fatal(err)
		}
		took = append(took, time.Since(begin))
		site.mustRemove(box.Id)
	}
	return took.summary()
}

// emptyDir is a directory of the host for sandboxes.
func (s *suite) emptyDir() string {
	dir, err := os.MkdirTemp("/var/tmp", "caisson-bench-dir-")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.t.Error(err)
		}
	})
	return dir
}

// creations measures Create of each spec, in turns.
func (s *site) creations(rounds int, before func(), specs ...*caissonv1.SandboxSpec) []Summary {
	took := make([]times, len(specs))
	for range rounds {
		for i, spec := range specs {
			before()
			begin := time.Now()
			box, err := s.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: spec})
			if err != nil {
				s.t.Fatal(err)
			}
			took[i] = append(took[i], time.Since(begin))
			s.mustRemove(box.Id)
		}
	}
	var all []Summary
	for _, t := range took {
		all = append(all, *t.summary())
	}
	return all
}

// The orphans are those of a pool: no later daemon goes on with them.
const (
	orphanCount  = 10
	orphanRounds = 5
	noPool       = "ids: {blocks: 64}\nwarm: 0\n"
)

// orphans kills a daemon and measures from the start of the next one until nothing is left of
// the sandboxes that nobody owns.
func (s *suite) orphans() *Summary {
	withPool := fmt.Sprintf("%spools: [{size: %d}]\n", noPool, orphanCount)
	site := startSite(s.t, withPool)
	file := site.flags[1]
	configure := func(settings string) {
		if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	left := filepath.Join(site.daemon.State, "sandboxes")
	var took times
	for range orphanRounds {
		site.awaitFull()
		site.daemon.Kill(s.t)
		if list, err := os.ReadDir(left); err != nil || len(list) != orphanCount {
			s.t.Fatalf("the killed daemon left %d sandboxes: %v", len(list), err)
		}
		configure(noPool)
		begin := time.Now()
		gone := make(chan time.Duration, 1)
		go func() {
			for {
				if list, err := os.ReadDir(left); err == nil && len(list) == 0 {
					gone <- time.Since(begin)
					return
				}
				time.Sleep(5 * time.Millisecond) // nothing announces it
			}
		}()
		site.daemon.Launch(s.t, site.flags...)
		took = append(took, <-gone)
		site.daemon.Stop(s.t)
		configure(withPool)
		site.daemon.Launch(s.t, site.flags...)
	}
	return took.summary()
}
