package runtime

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/hostaddr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// Refusal is one destination that was refused while a command ran.
type Refusal struct {
	// Name is a name, or an address without one. In the mode none it is empty: the kernel
	// counts attempts, and tells no destination.
	Name  string      `json:"name"`
	Port  uint16      `json:"port"` // 0 of a lookup, and of a packet without ports
	Code  sbxerr.Code `json:"code"`
	Needs string      `json:"needs"` // the rule that would allow it; empty where none can
}

// maxRefusals bounds the refusals of one result.
const maxRefusals = 10

// refusals are those that happened while e ran. c counts what the sandbox tried so far; nil
// is nothing. The records are read only where more was refused than before e.
func (h *host) refusals(s *sandbox, e *execution, c *EgressCounters) ([]Refusal, error) {
	total := c.refused()
	s.mu.Lock()
	s.refused = max(s.refused, total)
	s.mu.Unlock()
	rec := s.kept()
	switch {
	case total <= e.refusedBefore:
		return nil, nil
	case !counts(rec.Network):
		return []Refusal{{Code: sbxerr.EgressDenied}}, nil
	}
	entries, err := h.opts.Traffic.Refused(s.id, e.record.StartedAt)
	if err != nil {
		return nil, err
	}
	p, done, err := policyOf(rec)
	defer done()
	var list []Refusal
	for _, t := range entries {
		r := Refusal{Name: cmp.Or(t.Name, t.Address), Port: t.Port, Code: t.Code}
		if slices.ContainsFunc(list, func(o Refusal) bool { return o.Name == r.Name && o.Port == r.Port }) {
			continue
		}
		if p != nil {
			r.Needs = neededFor(p, t)
		}
		if list = append(list, r); len(list) == maxRefusals {
			break
		}
	}
	return list, err
}

// policyOf is the policy of a sandbox, which knows the host's own addresses until done is
// called. It is nil on an error, and in the mode bridge, which has no rules.
func policyOf(r record) (p *policy.Policy, done func(), err error) {
	done = func() {}
	if r.Network == netns.ModeBridge {
		return nil, done, nil
	}
	p, err = policy.Compile(r.Policy)
	if err != nil {
		return nil, done, err
	}
	host, err := hostaddr.Open()
	if err != nil {
		return nil, done, sbxerr.Wrap(sbxerr.Network, "runtime.refusals", err)
	}
	return p.On(host.Local), func() { _ = host.Close() }, nil
}

// addNeeds adds to entries that were refused the rules that would allow them now.
func addNeeds(r record, entries []traffic.Entry) error {
	isRefused := func(e traffic.Entry) bool { return e.Code != "" && e.Kind != traffic.Gap }
	if !slices.ContainsFunc(entries, isRefused) {
		return nil
	}
	p, done, err := policyOf(r)
	defer done()
	for i, e := range entries {
		if p != nil && isRefused(e) {
			entries[i].Needs = neededFor(p, e)
		}
	}
	return err
}

// neededFor is the rule that would allow e by p, empty where none can.
func neededFor(p *policy.Policy, e traffic.Entry) string {
	if e.Kind == traffic.Packet || policy.CitesRoute(e.Rule) { // of a protocol that no rule is about, or to where no rule is needed
		return ""
	}
	t, err := policy.ParseTarget(cmp.Or(e.Name, e.Address))
	switch t.Port = e.Port; {
	case err != nil:
		return ""
	case e.Kind == traffic.Lookup:
		return p.DecideLookup(t.Name).Needs
	}
	d := p.Check(t)
	if d.Allowed && e.Private && e.Code == sbxerr.EgressAddress { // known once it was resolved
		return policy.WithPrivate(net.JoinHostPort(string(t.Name), strconv.Itoa(int(t.Port))))
	}
	if d.Allowed && e.Code == sbxerr.EgressMismatch && attempt.NamesNobody(e.Reason) {
		return p.NeededOpaque(t.Name, t.Port)
	}
	return d.Needs
}

// refused is all that was, 0 for nil.
func (c *EgressCounters) refused() int64 {
	if c == nil {
		return 0
	}
	return c.Refused + c.LookupsRefused
}
