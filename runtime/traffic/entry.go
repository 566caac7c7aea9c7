package traffic

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/usage"
)

// Kind says what was tried.
type Kind string

// The kinds.
const (
	Connection Kind = "connection"
	Lookup     Kind = "lookup"
	Linked     Kind = "link"    // a connection to another sandbox
	Inbound    Kind = "inbound" // a connection from outside to a published port
	Packet     Kind = "packet"  // of another protocol than TCP, which was refused
	Request    Kind = "request" // to a route
	Gap        Kind = "gap"     // no attempt: entries that were here are no longer kept
)

// Entry is one attempt of a sandbox, or to reach it, and what became of it.
type Entry struct {
	Sandbox  string        `json:"-"`    // its ID; not kept, as each sandbox has files of its own
	Cursor   Cursor        `json:"-"`    // where a reader goes on after it; of a gap none
	Needs    string        `json:"-"`    // the rule that would allow it, found when it is read
	Time     time.Time     `json:"time"` // when it began
	Kind     Kind          `json:"kind"`
	Verdict  string        `json:"verdict"`           // of attempt.Verdict or lookup.Verdict
	Name     string        `json:"name,omitempty"`    // empty for an address without a name
	Port     uint16        `json:"port,omitempty"`    // 0 for a lookup; inside, of what came in
	Type     string        `json:"type,omitempty"`    // of a lookup: "A"; of a packet: "udp"; of a request: "GET /path"
	Status   int           `json:"status,omitempty"`  // of a request: that the client got; 0 if it went away before
	Secret   string        `json:"secret,omitempty"`  // of a request: the name of its credential
	Address  string        `json:"address,omitempty"` // that was connected to, without the port; empty if none was
	Peer     string        `json:"peer,omitempty"`    // of what came in: the address and port that it came from
	Private  bool          `json:"private,omitempty"` // it led to an address that is not public, as a rule has to say
	Mapped   bool          `json:"mapped,omitempty"`  // the operator's map says where the name leads
	Rule     string        `json:"rule,omitempty"`    // that caused the verdict
	Code     sbxerr.Code   `json:"code,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Sent     int64         `json:"sent,omitempty"` // bytes from the sandbox
	Received int64         `json:"received,omitempty"`
	Model    string        `json:"model,omitempty"` // of a request, if the answer told it
	Input    int64         `json:"input,omitempty"` // tokens
	Output   int64         `json:"output,omitempty"`
	Micros   int64         `json:"micros,omitempty"` // cost, in millionths of the unit of prices
	Duration time.Duration `json:"duration"`
	Skipped  uint64        `json:"skipped,omitempty"` // attempts before this one that have no entry
}

func entryOfAttempt(a attempt.Attempt) Entry {
	address := a.Address
	if !address.IsValid() && a.Name == "" {
		address = a.Asked
	}
	e := Entry{
		Time: a.Begun, Kind: Connection, Verdict: string(a.Verdict), Name: string(a.Name), Port: a.Asked.Port(), Private: a.Private || isPrivate(address),
		Mapped: a.Mapped, Rule: a.Rule, Code: a.Code, Reason: a.Reason, Sent: a.Sent, Received: a.Received, Duration: a.Duration, Skipped: a.Skipped,
	}
	if a.Proxied {
		e.Private = false // where it led to, the proxy knows
		if a.Name == "" {
			address = a.Asked
		}
	}
	if a.Mapped {
		e.Private = false // the operator led it there, and no rule has to
	}
	if a.Linked {
		e.Kind, e.Private = Linked, false
	}
	if a.Protocol != "" {
		e.Kind, e.Type = Packet, a.Protocol
	}
	if address.IsValid() {
		e.Address = address.Addr().String()
	}
	return e
}

func entryOfUse(u usage.Use) Entry {
	e := Entry{
		Time: u.Begun, Kind: Request, Verdict: string(attempt.Allowed), Name: string(u.Name), Port: policy.RoutePort, Type: u.Method + " " + u.Path,
		Status: u.Status, Secret: u.Credential, Rule: cmp.Or(u.Rule, policy.RouteRule(u.Name)), Code: u.Code, Reason: u.Reason, Sent: u.Sent, Received: u.Received, Duration: u.Duration, Skipped: u.Skipped,
		Model: u.Model, Input: int64(u.Tokens.Input), Output: int64(u.Tokens.Output), Micros: int64(u.Micros),
	}
	e.Reason = strings.TrimSuffix(e.said()+": "+u.Reason, ": ")
	switch d, _ := sbxerr.Describe(u.Code); {
	case u.Code == "":
	case u.Code == sbxerr.Canceled:
		e.Verdict = string(attempt.Stopped)
	case d.Class == sbxerr.ClassPolicy && u.Status != http.StatusBadGateway:
		e.Verdict = string(attempt.Refused)
	default:
		e.Verdict = string(attempt.Failed)
	}
	return e
}

// said is the answer to a request, and the credential that was used.
func (e Entry) said() string {
	text := "no answer"
	if e.Status != 0 {
		text = fmt.Sprintf("status %d", e.Status)
	}
	if e.Secret != "" {
		text += fmt.Sprintf(", credential %q", e.Secret)
	}
	if e.Input+e.Output > 0 {
		text += fmt.Sprintf(", %d tokens in and %d out", e.Input, e.Output)
	}
	return text
}

// Request is the method and the path of a request, empty for all else.
func (e Entry) Request() string {
	if e.Kind != Request {
		return ""
	}
	return e.Type
}

func entryOfArrival(a attempt.Arrival) Entry {
	return Entry{
		Time: a.Begun, Kind: Inbound, Verdict: string(a.Verdict), Port: a.Port, Peer: a.Peer.String(),
		Code: a.Code, Reason: a.Reason, Sent: a.Sent, Received: a.Received, Duration: a.Duration, Skipped: a.Skipped,
	}
}

func isPrivate(a netip.AddrPort) bool {
	return a.IsValid() && policy.Classify(a.Addr()).Grade != policy.Public
}

func entryOfQuery(q lookup.Query, now time.Time) Entry {
	return Entry{
		Time: now.Add(-q.Duration), Kind: Lookup, Verdict: string(q.Verdict), Name: q.Name, Type: q.Type,
		Rule: q.Rule, Code: q.Code, Reason: q.Reason, Duration: q.Duration, Skipped: q.Skipped,
	}
}

// carried reports whether e is something that came about. What did not costs a
// sandbox nothing, so it may not be the reason why the entry of what did is dropped.
func (e Entry) carried() bool {
	switch e.Kind {
	case Connection, Linked, Inbound, Request:
		return e.Verdict != string(attempt.Refused) && e.Verdict != string(attempt.Failed)
	}
	return false
}

// Seen is what a policy must allow for e to happen again, and false where e came
// to nothing. A mapped name needs no rule in a sandbox with a network; its rule is what gives
// a sandbox one. Nor does what a route led to.
func (e Entry) Seen() (policy.Seen, bool) {
	if e.Kind != Connection || !e.carried() || policy.CitesRoute(e.Rule) {
		return policy.Seen{}, false
	}
	s := policy.Seen{Name: policy.Name(e.Name), Port: e.Port, Private: e.Private, Opaque: policy.CitesOpaque(e.Rule)}
	if e.Name == "" {
		addr, err := netip.ParseAddr(e.Address)
		if err != nil {
			return policy.Seen{}, false
		}
		s.Address = addr
	}
	return s, true
}

// Missed reports whether e came to nothing, and says why.
func (e Entry) Missed() bool {
	return (e.Kind == Connection || e.Kind == Lookup) && e.Code != "" && e.Reason != ""
}

// SameDestination reports whether o was about the same as e.
func (e Entry) SameDestination(o Entry) bool { return e.Destination() == o.Destination() }

// Destination is what e was about, as people write it.
func (e Entry) Destination() string {
	host := cmp.Or(e.Name, e.Address)
	if e.Port == 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(e.Port)))
}
