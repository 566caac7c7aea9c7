package lookup

import (
	"net/netip"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Verdict is what became of a question.
type Verdict string

// The verdicts.
const (
	Answered Verdict = "answered" // with an address of the pool
	Empty    Verdict = "empty"    // an allowed name, but nothing that is told about it
	Absent   Verdict = "absent"   // an allowed name that does not exist
	Refused  Verdict = "refused"  // by the policy or a limit
	Failed   Verdict = "failed"   // an allowed name that nobody could resolve
)

// Query is one question and what became of it.
type Query struct {
	Sandbox  string
	Name     string // canonical, or what was asked for if that is no host name
	Type     string // "A"
	Verdict  Verdict
	Rule     string // that caused the verdict
	Code     sbxerr.Code
	Reason   string
	Address  netip.Addr // of the pool, if answered
	Duration time.Duration
	Skipped  uint64 // questions before this one that have no record: see Observer
}
