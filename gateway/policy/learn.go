package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// ManySiblings is how many names directly below one must have been used in the
// same way before Learn takes a wildcard for them.
const ManySiblings = 5

// Seen is a destination that a sandbox used.
type Seen struct {
	Name    Name       // or empty, for an address without a name
	Address netip.Addr // of one without a name
	Port    uint16
	Private bool // it led to an address that is not public
	Opaque  bool // a rule says that it is not read
}

// Learn returns the rules of the smallest policy that allows all of seen and
// can be written: a host with its ports each; a wildcard only where at least
// ManySiblings names below one name were used on the same ports, and never for private
// addresses. The rules are sorted. Destinations that no rule can allow give an error,
// together with the rules for the others.
func Learn(seen []Seen) ([]string, error) {
	rules, err := collect(seen)
	rules = generalize(rules)
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	slices.Sort(texts)
	return texts, err
}

// host is a destination for which ports are collected.
type host struct {
	name    Name
	address netip.Addr
	private bool
	opaque  bool
}

// collect makes one rule for each host, or more where one cannot hold its ports.
func collect(seen []Seen) ([]Rule, error) {
	ports := map[host][]uint16{}
	var errs []error
	for _, s := range seen {
		r, err := s.rule()
		if err != nil {
			errs = append(errs, fmt.Errorf("learn from %s: %w", s, err))
			continue
		}
		h := host{s.Name, s.Address, r.Private, r.Opaque}
		ports[h] = append(ports[h], s.Port)
	}
	var rules []Rule
	for h, all := range ports {
		slices.Sort(all)
		for some := range slices.Chunk(slices.Compact(all), maxPorts) {
			r := Rule{Action: ActAllow, Name: h.name, Ports: some, Private: h.private, Opaque: h.opaque}
			if h.name == "" {
				r.Prefix = single(h.address)
			}
			rules = append(rules, r)
		}
	}
	return rules, errors.Join(errs...)
}

// rule is the rule for s alone.
func (s Seen) rule() (Rule, error) {
	if s.Name != "" {
		suffix := ""
		if s.Private {
			suffix = private
		}
		if s.Opaque {
			suffix += opaque
		}
		return ParseRule(ActAllow, join(s.Name, s.Port)+suffix)
	}
	class := Classify(s.Address)
	if s.Private {
		class.Grade = min(class.Grade, Private) // on that host
	}
	text := neededAddress(class, s.Address, s.Port)
	if text == "" {
		return Rule{}, errors.New("no rule reaches it")
	}
	return ParseRule(ActAllow, text)
}

// String names s for messages.
func (s Seen) String() string {
	if s.Name != "" {
		return join(s.Name, s.Port)
	}
	return netip.AddrPortFrom(s.Address, s.Port).String()
}

// family holds the common parts of the names of one wildcard.
type family struct {
	parent Name
	ports  string
}

// generalize puts a wildcard in the place of many siblings.
func generalize(rules []Rule) []Rule {
	var kept []Rule
	families := map[family][]Rule{}
	for _, r := range rules {
		parent := r.Name.parent()
		if parent == "" || r.Private || r.Opaque || parent.checkWildcard(false) != nil || r.Name.suffixBelow(parent) != "" {
			kept = append(kept, r)
			continue
		}
		f := family{parent, fmt.Sprint(r.Ports)}
		families[f] = append(families[f], r)
	}
	for f, members := range families {
		if len(members) >= ManySiblings {
			members = []Rule{{Action: ActAllow, Name: f.parent, Wildcard: true, Ports: members[0].Ports}}
		}
		kept = append(kept, members...)
	}
	return kept
}
