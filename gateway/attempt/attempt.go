// Package attempt is what the gateway tells of connections.
package attempt

import (
	"net/netip"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// Verdict is what became of an
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed" // connected, and ended by one of the two sides
	Refused Verdict = "refused" // by the policy, or because the client named another host
	Failed  Verdict = "failed"  // allowed, but the destination was not to be had
	Cut     Verdict = "cut"     // connected, then ended by a change of the policy
	Idle    Verdict = "idle"    // connected, then ended because nothing was sent
	Stopped Verdict = "stopped" // ended with the sandbox
)

// Attempt is one connection of a sandbox and what became of it; or a packet of another
// protocol, which was refused.
type Attempt struct {
	Sandbox  string
	Protocol string         // that no gateway carries, "udp" and others; empty is TCP
	Name     policy.Name    // empty for an address without a name
	Asked    netip.AddrPort // what the sandbox connected to; for a name an address of its pool
	Address  netip.AddrPort // what was dialled; zero if nothing was
	Rule     string         // that caused the verdict
	Linked   bool           // the name leads to another sandbox, in which Address is
	Mapped   bool           // the operator's map of names says where it leads
	Proxied  bool           // it left through the upstream proxy, whose Address is
	Private  bool           // it led to what is not public, as the rule lets it; of a refusal: as a rule could
	Verdict  Verdict
	Code     sbxerr.Code // of what was refused or failed
	Reason   string
	Sent     int64 // bytes from the sandbox to the destination
	Received int64
	Begun    time.Time
	Duration time.Duration
	Skipped  uint64 // attempts before this one that have no record
}

// Arrival is one connection from outside to a port of a sandbox, and what became of
// it. Refused is one that a limit ended.
type Arrival struct {
	Sandbox  string
	Peer     netip.AddrPort // who connected
	Port     uint16         // inside
	Verdict  Verdict
	Code     sbxerr.Code // of what failed
	Reason   string
	Sent     int64 // bytes from the sandbox
	Received int64
	Begun    time.Time
	Duration time.Duration
	Skipped  uint64 // connections before this one that a limit ended at once and that have no record
}

// Parts of the reason of a refusal: what a client did that named no host.
const (
	SaidNothing = "said nothing"
	NoHello     = "no TLS hello"
)

// NamesNobody reports whether the reason of a refusal is that a client said what is no TLS, or
// waited for its server to begin, as those of other protocols do.
func NamesNobody(reason string) bool {
	return strings.Contains(reason, NoHello) || strings.Contains(reason, SaidNothing)
}

// Batch is how many sockets for connections from outside come at once. At half of it, more are
// asked for.
const Batch = 16
