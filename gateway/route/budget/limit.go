package budget

import (
	"fmt"
	"strconv"
)

// Scope is what shares a budget.
type Scope string

// The scopes.
const (
	Sandbox Scope = "sandbox" // a sandbox, with those made inside
	Session Scope = "session" // the sandboxes of one session of a user
	Hour    Scope = "hour"    // all sandboxes of one user and profile, in each hour of the clock
)

// Scopes are all there are.
var Scopes = []Scope{Sandbox, Session, Hour}

// Limit is the most that may be used. A field of 0 is none.
type Limit struct {
	Requests uint64 `json:",omitempty"`
	Tokens   uint64 `json:",omitempty"`
	Bytes    uint64 `json:",omitempty"` // of bodies, both ways
	Micros   uint64 `json:",omitempty"` // cost, in millionths of the unit of prices
}

// over says what of l is used up, empty for nothing.
func (l Limit) over(a Amount) (what, used, limit string) {
	switch {
	case l.Requests > 0 && a.Requests >= l.Requests:
		return "requests", decimal(a.Requests), decimal(l.Requests)
	case l.Tokens > 0 && a.Tokens.Total() >= l.Tokens:
		return "tokens", decimal(a.Tokens.Total()), decimal(l.Tokens)
	case l.Bytes > 0 && a.Bytes >= l.Bytes:
		return "bytes", decimal(a.Bytes), decimal(l.Bytes)
	case l.Micros > 0 && a.Micros >= l.Micros:
		return "cost", money(a.Micros), money(l.Micros)
	}
	return "", "", ""
}

// and is what both allow.
func (l Limit) and(m Limit) Limit {
	return Limit{lower(l.Requests, m.Requests), lower(l.Tokens, m.Tokens), lower(l.Bytes, m.Bytes), lower(l.Micros, m.Micros)}
}

// lower is the lower one of two limits, where 0 is none.
func lower(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func money(micros uint64) string { return fmt.Sprintf("%.2f", float64(micros)/Micro) }

// of is the scope as a sentence has it.
func (s Scope) of() string {
	if s == Hour {
		return "this hour"
	}
	return "of this " + string(s)
}
