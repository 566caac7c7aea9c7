package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

// ttl is how long a sandbox may keep an address, in seconds. The address never
// changes, but whether the name exists may.
const ttl = 60

// outcome is an answer to one question before it is a message.
type outcome struct {
	verdict lookup.Verdict
	address netip.Addr
	rule    string
	err     error // why it was refused or failed
}

// answer fills in reply for question and returns its record.
func (s *server) answer(question miekg.Question, reply *miekg.Msg) lookup.Query {
	name, o := s.decide(question)
	o.write(question, reply)
	record := lookup.Query{
		Name: string(name), Type: typeName(question.Qtype), Verdict: o.verdict, Rule: o.rule, Address: o.address, Code: sbxerr.Of(o.err),
	}
	if o.err != nil {
		record.Reason = policy.Cause(o.err)
	}
	if name == "" {
		record.Name = nameAsked(question)
	}
	return record
}

// nameAsked is for records: it need not be a host name.
func nameAsked(question miekg.Question) string {
	return clip(strings.TrimSuffix(question.Name, "."), maxRecorded)
}

// decide says what becomes of question. Name is empty if it is no host name.
func (s *server) decide(question miekg.Question) (policy.Name, outcome) {
	name, err := s.nameOf(question)
	if err != nil {
		return name, outcome{verdict: lookup.Refused, rule: "name", err: err}
	}
	p := s.Policy()
	d := p.DecideLookup(name)
	if !d.Allowed {
		return name, refusal(d)
	}
	o := outcome{verdict: lookup.Empty}
	if question.Qtype == miekg.TypeA || question.Qtype == miekg.TypeAAAA {
		o = s.resolve(p, name)
	}
	if o.verdict == lookup.Answered && question.Qtype != miekg.TypeA {
		o = outcome{verdict: lookup.Empty}
	}
	o.rule = cmp.Or(o.rule, d.Rule)
	return name, o
}

func refusal(d policy.Decision) outcome {
	return outcome{verdict: lookup.Refused, rule: d.Rule, err: d.Err()}
}

// nameOf checks the question's form.
func (s *server) nameOf(question miekg.Question) (policy.Name, error) {
	const op = "dns.question"
	if question.Qclass != miekg.ClassINET {
		return "", sbxerr.New(sbxerr.EgressDenied, op, "only names of the internet (class IN) are known")
	}
	name, err := policy.ParseWireName(question.Name)
	if err != nil {
		return "", sbxerr.Wrap(sbxerr.EgressDenied, op, err)
	}
	if len(name) > s.Limits.NameBytes || strings.Count(string(name), ".") >= s.Limits.Labels {
		return "", sbxerr.WithRemedy(sbxerr.EgressDenied, op, fmt.Errorf("the name has more than %d bytes or %d labels", s.Limits.NameBytes, s.Limits.Labels),
			"no rule allows so long a name: it could carry data out")
	}
	return name, nil
}

// resolve gives an allowed name its address, if it exists, and is allowed still when
// that is known.
func (s *server) resolve(p *policy.Policy, name policy.Name) outcome {
	o, ok := s.known(p, name)
	if d := s.Policy().DecideLookup(name); !d.Allowed {
		return refusal(d)
	}
	if !ok {
		return o
	}
	addr, err := s.Pool.Address(name)
	if err != nil {
		return outcome{verdict: lookup.Refused, rule: "limit of names", err: err}
	}
	return outcome{verdict: lookup.Answered, address: addr}
}

// known reports whether name may be taken to exist, by asking for it where nobody else
// does. The outcome counts only if not.
func (s *server) known(p *policy.Policy, name policy.Name) (outcome, bool) {
	_, mapped := p.Mapped(name, 0)
	_, linked := p.Linked(name)
	if mapped || linked || p.HasRoute(name) {
		return outcome{}, true
	}
	if !s.begin(name) {
		return outcome{verdict: lookup.Refused, rule: "limit of new names", err: sbxerr.New(sbxerr.EgressBusy, "dns.answer", "too many new names; ask again later")}, false
	}
	defer s.finish(name)
	if s.Elsewhere != nil && s.Elsewhere(p, name) {
		return outcome{}, true
	}
	return s.exists(name)
}

// begin notes a question for the addresses of name, and reports whether there may be one: the
// questions for both families that a program asks together count as one for a new name.
func (s *server) begin(name policy.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.Pool.Lookup(name); !used && s.asking[name] == 0 && !s.fresh.Allow() {
		return false
	}
	s.asking[name]++
	return true
}

// finish is told when it is answered.
func (s *server) finish(name policy.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking[name]--; s.asking[name] == 0 {
		delete(s.asking, name)
	}
}

// exists asks upstream for name, within the limits. The outcome counts only if
// it does not exist.
func (s *server) exists(name policy.Name) (outcome, bool) {
	select {
	case s.pending <- struct{}{}:
		defer func() { <-s.pending }()
	default:
		return outcome{verdict: lookup.Refused, rule: "limit of pending questions", err: sbxerr.New(sbxerr.EgressBusy, "dns.answer", "too many questions wait; ask again later")}, false
	}
	ctx, cancel := s.whileAllowed(name)
	defer cancel()
	_, err := s.Resolver.Resolve(ctx, name)
	switch {
	case err == nil:
		return outcome{}, true
	case errors.Is(err, ErrNoName):
		return outcome{verdict: lookup.Absent, err: err}, false
	case errors.Is(err, ErrNoAddress):
		return outcome{verdict: lookup.Empty, err: err}, false
	case sbxerr.Of(err) == sbxerr.EgressBusy:
		return outcome{verdict: lookup.Refused, rule: "limit of lookups", err: err}, false
	}
	return outcome{verdict: lookup.Failed, err: err}, false
}

// whileAllowed is a context that ends when the policy in force does not allow name.
func (s *server) whileAllowed(name policy.Name) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx)
	go func() {
		defer cancel()
		for {
			p := s.Policy()
			if !p.DecideLookup(name).Allowed {
				return
			}
			select {
			case <-p.Over():
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// write makes a message of o.
func (o outcome) write(question miekg.Question, reply *miekg.Msg) {
	switch o.verdict {
	case lookup.Answered:
		header := miekg.RR_Header{Name: question.Name, Rrtype: miekg.TypeA, Class: miekg.ClassINET, Ttl: ttl}
		reply.Answer = []miekg.RR{&miekg.A{Hdr: header, A: o.address.AsSlice()}}
	case lookup.Empty:
	case lookup.Absent:
		reply.Rcode = miekg.RcodeNameError
	case lookup.Failed:
		tell(reply, miekg.RcodeServerFailure, miekg.ExtendedErrorCodeNoReachableAuthority, policy.DenialOf(o.err).String())
	default:
		rcode, info := refusalCodes(o.err)
		tell(reply, rcode, info, policy.DenialOf(o.err).String())
	}
}

// refusalCodes tell a limit, after which asking again helps, from the policy. C libraries take
// REFUSED for a passing failure (getaddrinfo(3), EAI_AGAIN), and programs try again.
// A name that does not exist is final for all.
func refusalCodes(err error) (rcode int, info uint16) {
	if sbxerr.Of(err) == sbxerr.EgressBusy {
		return miekg.RcodeRefused, miekg.ExtendedErrorCodeProhibited
	}
	return miekg.RcodeNameError, miekg.ExtendedErrorCodeBlocked
}

// The bounds of texts, in bytes.
const (
	maxSaid     = 300 // fits into the least message
	maxRecorded = 255
)

// tell gives reply its code, and the reason where the client speaks EDNS.
func tell(reply *miekg.Msg, rcode int, info uint16, text string) {
	reply.Rcode = rcode
	if opt := reply.IsEdns0(); opt != nil {
		opt.Option = append(opt.Option, &miekg.EDNS0_EDE{InfoCode: info, ExtraText: clip(text, maxSaid)})
	}
}

func clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func typeName(t uint16) string {
	if name, ok := miekg.TypeToString[t]; ok {
		return name
	}
	return "TYPE"
}
