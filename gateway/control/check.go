package control

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/usage"
)

// The bounds of texts, in bytes.
const (
	maxID   = 64
	maxText = 1024 // reasons, rules, remedies
	maxName = 300  // a canonical name, or what was asked for instead
)

var (
	proxyVerdicts = []attempt.Verdict{attempt.Allowed, attempt.Refused, attempt.Failed, attempt.Cut, attempt.Idle, attempt.Stopped}
	dnsVerdicts   = []lookup.Verdict{lookup.Answered, lookup.Empty, lookup.Absent, lookup.Refused, lookup.Failed}
)

// check reports what r lacks. Whether the policy is one, policy.Compile says.
func (r Request) check() error {
	switch r.Op {
	case Configure, Ping, Secrets, TrySecret:
		if r.Sandbox != "" {
			return fmt.Errorf("the operation %q is not about a sandbox", r.Op)
		}
	case Settle:
		if r.Sandbox == "" {
			break
		}
		fallthrough
	case Add, Watch, SetPolicy, SetBill, Publish, Admit, Supply, Remove:
		if err := checkID(r.Sandbox); err != nil {
			return err
		}
	default:
		return fmt.Errorf("there is no operation %q", clean(string(r.Op), maxID))
	}
	switch {
	case r.Seq == 0:
		return errors.New("a request without a number")
	case len(r.Names) > MaxNames:
		return fmt.Errorf("%d names are more than %d", len(r.Names), MaxNames)
	case r.Op == TrySecret && len(r.Secrets) != 1, r.Op != TrySecret && r.Op != Secrets && len(r.Secrets) > 0, r.Op != Secrets && len(r.Kept) > 0, len(r.Secrets)+len(r.Kept) > MaxSecrets:
		return fmt.Errorf("the operation %q with %d secrets, and %d that stay", r.Op, len(r.Secrets), len(r.Kept))
	case r.Op == Publish:
		return errors.Join(checkPorts(r.Ports, r.Exposed), checkClients(r.Clients, len(r.Ports)))
	case r.Op == Admit:
		return checkClients(r.Clients, min(len(r.Clients), MaxPorts))
	case r.Op == Supply && (r.Sockets < 1 || r.Sockets > attempt.Batch):
		return fmt.Errorf("%d are not 1 to %d sockets", r.Sockets, attempt.Batch)
	}
	return nil
}

func checkPorts(ports, exposed []uint16) error {
	if len(ports)+len(exposed) == 0 || max(len(ports), len(exposed)) > MaxPorts || slices.Contains(ports, 0) || slices.Contains(exposed, 0) {
		return fmt.Errorf("%d and %d are not 1 to %d ports, or one is 0", len(ports), len(exposed), MaxPorts)
	}
	return nil
}

func checkClients(clients [][]netip.Prefix, ports int) error {
	if len(clients) > 0 && len(clients) != ports {
		return fmt.Errorf("the clients of %d of %d ports", len(clients), ports)
	}
	for _, list := range clients {
		if len(list) > MaxClients || slices.ContainsFunc(list, func(p netip.Prefix) bool { return !p.IsValid() }) {
			return fmt.Errorf("%d clients of a port are more than %d, or one is none", len(list), MaxClients)
		}
	}
	return nil
}

func checkID(id string) error {
	if id == "" || len(id) > maxID || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		return fmt.Errorf("%q is no ID of a sandbox", clean(id, maxID))
	}
	return nil
}

// check reports what is not as this package says.
func (r Report) check() error {
	parts := []struct {
		set   bool
		check func() error
	}{
		{r.Confined, func() error { return nil }},
		{r.Answer != nil, func() error { return r.Answer.check() }},
		{r.Attempt != nil, func() error { return checkAttempt(r.Attempt) }},
		{r.Query != nil, func() error { return checkQuery(r.Query) }},
		{r.Named != nil, func() error { return r.Named.check() }},
		{r.Arrival != nil, func() error { return checkArrival(r.Arrival) }},
		{r.Use != nil, func() error { return checkUse(r.Use) }},
		{r.Need != nil, func() error { return checkID(r.Need.Sandbox) }},
		{r.Open != nil, func() error { return r.Open.check() }},
		{r.Inbound != nil, func() error { return (*Open)(r.Inbound).check() }},
		{r.Broken != nil, func() error { return checkID(r.Broken.Sandbox) }},
		{r.Spent != nil, func() error { return checkSpent(r.Spent) }},
	}
	var said []func() error
	for _, p := range parts {
		if p.set {
			said = append(said, p.check)
		}
	}
	if len(said) != 1 {
		return fmt.Errorf("a report says %d things at once", len(said))
	}
	return said[0]()
}

func (a *Answer) check() error {
	if a.Seq == 0 {
		return errors.New("an answer without a number")
	}
	return checkCode(a.Code)
}

// checkCode refuses what is no code: codes are part of the API.
func checkCode(c sbxerr.Code) error {
	if _, known := sbxerr.Describe(c); c != "" && !known {
		return errors.New("an unknown code")
	}
	return nil
}

func checkAttempt(a *attempt.Attempt) error {
	switch {
	case !slices.Contains(proxyVerdicts, a.Verdict):
		return errors.New("an attempt with an unknown verdict")
	case a.Sent < 0 || a.Received < 0 || a.Duration < 0:
		return errors.New("an attempt with less than nothing")
	case a.Name != "" && !canonical(a.Name):
		return errors.New("an attempt to what is no name")
	case a.Protocol != "" && a.Verdict != attempt.Refused:
		return errors.New("an attempt that was not refused, by a protocol that nothing carries")
	}
	return errors.Join(checkID(a.Sandbox), checkCode(a.Code))
}

func checkArrival(a *attempt.Arrival) error {
	switch {
	case !slices.Contains(proxyVerdicts, a.Verdict):
		return errors.New("an arrival with an unknown verdict")
	case a.Sent < 0 || a.Received < 0 || a.Duration < 0:
		return errors.New("an arrival with less than nothing")
	}
	return errors.Join(checkID(a.Sandbox), checkCode(a.Code))
}

func checkUse(u *usage.Use) error {
	switch {
	case u.Sent < 0 || u.Received < 0 || u.Duration < 0 || u.Status < 0 || u.Status > 999:
		return errors.New("a request with less than nothing, or no status")
	case !canonical(u.Name):
		return errors.New("a request to what is no name")
	case tooMuch(budget.Amount{Tokens: u.Tokens, Micros: u.Micros}):
		return errors.New("a request that took more than there is")
	}
	return errors.Join(checkID(u.Sandbox), checkCode(u.Code))
}

// maxCount bounds each number of an amount.
const maxCount = 1 << 60

func tooMuch(a budget.Amount) bool {
	return max(a.Requests, a.Bytes, a.Micros, a.Estimated, a.Tokens.Input, a.Tokens.Cached, a.Tokens.Stored, a.Tokens.Output, a.Tokens.Reasoning) > maxCount
}

func checkSpent(list []budget.Entry) error {
	if len(list) > MaxSpent {
		return fmt.Errorf("%d accounts are more than %d", len(list), MaxSpent)
	}
	for _, e := range list {
		a := e.Account
		switch {
		case !slices.Contains(budget.Scopes, a.Scope) || a.Hour < 0:
			return errors.New("an account of an unknown scope")
		case len(a.Of) > maxText || len(a.Route) > maxID || clean(a.Of, maxText) != a.Of || clean(a.Route, maxID) != a.Route:
			return errors.New("an account of what cannot have one")
		case tooMuch(e.Amount):
			return errors.New("an account that comes to more than there is")
		}
	}
	return nil
}

func checkQuery(q *lookup.Query) error {
	switch {
	case !slices.Contains(dnsVerdicts, q.Verdict):
		return errors.New("a question with an unknown verdict")
	case q.Duration < 0:
		return errors.New("a question that took less than nothing")
	}
	return errors.Join(checkID(q.Sandbox), checkCode(q.Code))
}

func (n *Named) check() error {
	if !canonical(n.Name) || !policy.Pool.Contains(n.Address) {
		return errors.New("what was named is no name, or not in the pool")
	}
	return checkID(n.Sandbox)
}

func (o *Open) check() error {
	if o.Connections < 0 {
		return errors.New("less than no connections")
	}
	return checkID(o.Sandbox)
}

// canonical reports whether n is in its one form.
func canonical(n policy.Name) bool {
	parsed, err := policy.ParseWireName(string(n))
	return err == nil && parsed == n
}

// shorten brings all texts of r within bounds.
func (r *Report) shorten() {
	if r.Answer != nil {
		a := *r.Answer
		a.Message, a.Remedy = clean(a.Message, maxText), clean(a.Remedy, maxText)
		r.Answer = &a
	}
	if r.Attempt != nil {
		a := *r.Attempt
		a.Rule, a.Reason, a.Protocol = clean(a.Rule, maxText), clean(a.Reason, maxText), clean(a.Protocol, maxID)
		a.Asked, a.Address = withoutZone(a.Asked), withoutZone(a.Address)
		a.Begun = notAfter(a.Begun, time.Now())
		r.Attempt = &a
	}
	if r.Query != nil {
		q := *r.Query
		q.Name, q.Type = clean(q.Name, maxName), clean(q.Type, maxID)
		q.Rule, q.Reason = clean(q.Rule, maxText), clean(q.Reason, maxText)
		q.Address = q.Address.WithZone("")
		r.Query = &q
	}
	if r.Arrival != nil {
		a := *r.Arrival
		a.Reason, a.Peer = clean(a.Reason, maxText), withoutZone(a.Peer)
		a.Begun = notAfter(a.Begun, time.Now())
		r.Arrival = &a
	}
	if r.Use != nil {
		u := *r.Use
		u.Rule = clean(u.Rule, maxText)
		u.Credential, u.Method = clean(u.Credential, maxID), clean(u.Method, maxID)
		u.Path, u.Reason, u.Model = clean(u.Path, maxText), clean(u.Reason, maxText), clean(u.Model, maxID)
		u.Begun = notAfter(u.Begun, time.Now())
		r.Use = &u
	}
	if r.Broken != nil {
		b := *r.Broken
		b.Reason = clean(b.Reason, maxText)
		r.Broken = &b
	}
}

// withoutZone drops what an address may carry beside its bits: text.
func withoutZone(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

// notAfter keeps a time in the past, and in a form that prints.
func notAfter(t, last time.Time) time.Time {
	if t.After(last) {
		t = last
	}
	return t.Round(0).UTC()
}

// clean makes s one line of printable text of at most so many bytes.
func clean(s string, most int) string {
	if len(s) > most {
		s = s[:most]
		for !utf8.ValidString(s) && len(s) > most-utf8.UTFMax {
			s = s[:len(s)-1]
		}
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
