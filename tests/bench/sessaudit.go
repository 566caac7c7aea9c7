package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/audit"
)

const (
	auditRecords = 200_000
	auditRounds  = 20 // short commands for each cold run
)

// audit measures the audit log by itself, and what it takes of a short command: of two
// daemons side by side, one keeps none.
func (s *suite) audit() {
	with, without := s.plainSite(), startSite(s.t, "audit: {enabled: false}\n")
	a, b := with.create(), without.create()
	defer with.mustRemove(a.Id)
	defer without.mustRemove(b.Id)
	var on, off times
	for i := range s.rounds*auditRounds + warmRounds {
		for _, side := range []struct {
			site *site
			box  string
			took *times
		}{{with, a.Id, &on}, {without, b.Id, &off}} {
			begin := time.Now()
			if _, err := side.site.execTrue(s.t.Context(), side.box); err != nil {
				s.t.Fatal(err)
			}
			if i >= warmRounds {
				*side.took = append(*side.took, time.Since(begin))
			}
		}
	}
	s.r.Sessions = append(s.r.Sessions, Section{Name: "audit", Runs: []Run{
		{Name: "caisson", What: "exec /bin/true over the API, with the audit log", Took: on.summary()},
		{Name: "caisson", What: "exec /bin/true over the API, without the audit log", Took: off.summary()},
	}})
	s.r.target(atMost("exec with the audit log to exec without, p50", on.summary().P50/off.summary().P50, 1.05, ""))
	s.auditedCreates(with, without)
	record, verify := s.auditRates()
	s.r.target(atLeast("audit records written", record, 20_000, "records/s"))
	s.r.target(atLeast("audit records verified", verify, 200_000, "records/s"))
}

// auditedCreates measures the making and removing of sandboxes in turns on two daemons.
func (s *suite) auditedCreates(with, without *site) {
	var on, off times
	for i := range s.rounds + warmRounds {
		for _, side := range []struct {
			site *site
			took *times
		}{{with, &on}, {without, &off}} {
			begin := time.Now()
			side.site.mustRemove(side.site.create().Id)
			if i >= warmRounds {
				*side.took = append(*side.took, time.Since(begin))
			}
		}
	}
	s.r.Sessions = append(s.r.Sessions, Section{Name: "audited creates", Runs: []Run{
		{Name: "caisson", What: "create and rm over the API, with the audit log", Took: on.summary()},
		{Name: "caisson", What: "create and rm over the API, without the audit log", Took: off.summary()},
	}})
	s.r.target(atLeast("creates and removals a second with the audit log to those without", off.summary().P50/on.summary().P50, 0.95, ""))
}

// auditRates returns how many records are written and verified in a second.
func (s *suite) auditRates() (record, verify float64) {
	dir, err := os.MkdirTemp("/var/tmp", "caisson-bench-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	log, _, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), Name: "bench"})
	if err != nil {
		s.t.Fatal(err)
	}
	object := fmt.Appendf(nil, `{"type":"run.caisson.exec.ended","data":"%s"}`, strings.Repeat("x", 430))
	begin := time.Now()
	for range auditRecords {
		err = errors.Join(err, log.Record(object, true))
	}
	record = auditRecords / time.Since(begin).Seconds()
	if err := errors.Join(err, log.Close()); err != nil {
		s.t.Fatal(err)
	}
	begin = time.Now()
	r, err := audit.Verify(filepath.Join(dir, "audit"), audit.VerifyOptions{})
	if err != nil || r.Err() != nil || r.Records != auditRecords {
		s.t.Fatalf("verify: %v, %+v", err, r)
	}
	return record, auditRecords / time.Since(begin).Seconds()
}
