// Package usage is what became of the requests that sandboxes made by routes, or by plain HTTP.
package usage

import (
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/tokens"
)

// Use is one request and what became of it.
type Use struct {
	Sandbox    string
	Name       policy.Name // of the route, inside, or of the host
	Rule       string      // that allows the host; empty for a route
	Credential string      // name of the secret; empty is none
	Method     string
	Path       string      // decoded, without the query
	Status     int         // that the client got; 0 if it went away before
	Code       sbxerr.Code // of a request that was refused, failed or broke off
	Reason     string      // of one without Code: what it was for, if that is known
	Sent       int64       // bytes of the body from the sandbox
	Received   int64
	Begun      time.Time
	Duration   time.Duration
	Model      string // that answered, if it is known
	Tokens     tokens.Count
	Micros     uint64 // cost, in millionths of the unit of prices
	Estimated  bool   // Tokens are
	Skipped    uint64 // requests before this one that have no record
}
