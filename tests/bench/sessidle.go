package main

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// mostIdleRounds bounds the rounds: each takes the second after which a sandbox is idle.
const mostIdleRounds = 20

// idle measures what a command waits for a sandbox that is paused because it was idle.
func (s *suite) idle() {
	site := s.plainSite()
	box := site.createOf(&caissonv1.SandboxSpec{IdleTimeout: durationpb.New(time.Second), OnIdle: "pause"})
	defer site.mustRemove(box.Id)
	var asleep, awake times
	exec := func() time.Duration {
		begin := time.Now()
		if _, err := site.execTrue(s.t.Context(), box.Id); err != nil {
			s.t.Fatal(err)
		}
		return time.Since(begin)
	}
	for range min(s.rounds, mostIdleRounds) {
		s.awaitAsleep(site, box.Id)
		asleep = append(asleep, exec())
		awake = append(awake, exec())
	}
	slept, ran := asleep.summary(), awake.summary()
	s.r.Sessions = append(s.r.Sessions, Section{Name: "idle", Runs: []Run{
		{Name: "caisson", What: "exec in a sandbox that is paused because it was idle", Took: slept},
		{Name: "caisson", What: "exec in the same one, awake", Took: ran},
	}})
	s.r.target(atMost("waking an idle sandbox adds to exec, p50", round(slept.P50-ran.P50), 5, "ms"))
}

func (s *suite) awaitAsleep(site *site, id string) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		d, err := site.Inspect(s.t.Context(), &caissonv1.InspectRequest{Ref: id})
		if err != nil {
			s.t.Fatal(err)
		}
		if d.Sandbox.PausedBy == "idle" {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal("the sandbox is not paused")
		}
	}
}
