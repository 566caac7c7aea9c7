package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Mode is the default for destinations without a rule.
type Mode string

// The modes, the strictest first.
const (
	None  Mode = "none"  // nothing, and there are no rules
	Allow Mode = "allow" // only destinations that a rule allows
	Open  Mode = "open"  // every public name, on every port
)

// maxRules bounds the rules and the mirrors of one policy, each.
const maxRules = 4096

// Spec is a policy as it is written: plain data. The zero Spec allows nothing.
type Spec struct {
	Mode  Mode     // empty is None
	Allow []string // see the package's comment
	Deny  []string
	// Map leads names to addresses that are not asked of any resolver: NAME to
	// ADDRESS[:PORT]. Without a port the one that was connected to is kept. A
	// mapped name is allowed on ports 80 and 443, and on those that a rule adds;
	// its address may be private.
	Map map[string]string
	// Links lead names to ports of other sandboxes.
	Links map[string]Link `json:",omitempty"`
	// Routes lead names below RouteZone to upstreams, by their first labels.
	Routes map[string]Route `json:",omitempty"`
	// AllowECH lets TLS hellos with encrypted_client_hello pass, also where a rule
	// depends on the name that they may hide.
	AllowECH bool `json:",omitempty"`
	// Site lets names of the mode open lead to private addresses too (RFC 1918, RFC 4193), but
	// to none of the host's own. It is for learning a policy.
	Site bool `json:",omitempty"`
	// Resolvers are asked for names, in this order; none: those of the gateway.
	Resolvers []netip.AddrPort `json:",omitempty"`
	// AirGapped is the operator's word over all of this: only mapped names, and
	// only to addresses that are not public.
	AirGapped bool
}

// Policy is a compiled Spec. It is never changed, so it can be shared.
type Policy struct {
	mode      Mode
	allow     index
	deny      index
	mirrors   map[Name]mirror
	links     map[Name]Link
	routes    map[Name]*Routed
	places    map[socket]Place // of routes, beside their names
	local     Local            // nil: no address is known to be the host's own
	airGapped bool
	allowECH  bool
	site      bool
	resolvers []netip.AddrPort // empty: those of the gateway

	over chan struct{} // closed by End; nil: it was never put in force
}

// index finds the rules about a name without looking at all rules.
type index struct {
	exact     map[Name][]Rule
	below     map[Name][]Rule // wildcards
	addresses map[netip.Prefix][]Rule
	lengths   []int  // of the prefixes of addresses, the longest first
	all       []Rule // as written
}

func newIndex() index {
	return index{exact: map[Name][]Rule{}, below: map[Name][]Rule{}, addresses: map[netip.Prefix][]Rule{}}
}

// Compile checks s as a whole. It reports all that is wrong with it, with code
// sbxerr.NetPolicy; an unknown mode has sbxerr.NetworkMode.
func Compile(s Spec) (*Policy, error) {
	mode, modeErr := ParseMode(string(s.Mode))
	p := &Policy{mode: mode, airGapped: s.AirGapped, allowECH: s.AllowECH, site: s.Site && mode == Open, resolvers: s.Resolvers}
	errs := []error{modeErr, s.checkBounds()}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var allowErr, denyErr, mapErr error
	p.allow, allowErr = compile(ActAllow, s.Allow)
	p.deny, denyErr = compile(ActDeny, s.Deny)
	p.mirrors, mapErr = parseMap(s.Map)
	var linkErr error
	p.links, linkErr = parseLinks(s.Links, p.mirrors)
	var routeErr, placeErr error
	if len(s.Routes) > 0 {
		p.routes, routeErr = parseRoutes(s)
		p.places, placeErr = placesOf(p.routes)
	}
	errs = append(errs, allowErr, denyErr, mapErr, linkErr, routeErr, placeErr, s.checkMode(mode))
	if s.AirGapped {
		errs = append(errs, p.checkAirGap())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, sbxerr.Wrap(sbxerr.NetPolicy, "policy.compile", err)
	}
	return p, nil
}

// ParseMode reads a mode of this package. Empty is None.
func ParseMode(s string) (Mode, error) {
	known := []string{string(None), string(Allow), string(Open)}
	switch {
	case s == "":
		return None, nil
	case slices.Contains(known, s):
		return Mode(s), nil
	}
	return None, sbxerr.WithRemedy(sbxerr.NetworkMode, "policy.mode",
		fmt.Errorf("network mode %q has no policy", sbxerr.Clip(s)), fmt.Sprintf("use one of %q", known))
}

func (s Spec) checkBounds() error {
	for _, c := range []struct {
		what string
		n    int
	}{{"rules that allow", len(s.Allow)}, {"rules that deny", len(s.Deny)}, {"mapped names", len(s.Map)}, {"links", len(s.Links)}} {
		if c.n > maxRules {
			return sbxerr.New(sbxerr.NetPolicy, "policy.compile", "the policy has %d %s, more than %d", c.n, c.what, maxRules)
		}
	}
	return nil
}

func compile(action Action, texts []string) (index, error) {
	x := newIndex()
	var reasons sbxerr.Reasons
	for _, text := range texts {
		r, err := ParseRule(action, text)
		if err != nil {
			reasons.Add(err)
			continue
		}
		x.add(r)
	}
	return x, reasons.Err()
}

func (x *index) add(r Rule) {
	x.all = append(x.all, r)
	switch {
	case r.Wildcard:
		x.below[r.Name] = append(x.below[r.Name], r)
	case r.Name != "":
		x.exact[r.Name] = append(x.exact[r.Name], r)
	default:
		x.addresses[r.Prefix] = append(x.addresses[r.Prefix], r)
		if at, found := slices.BinarySearchFunc(x.lengths, r.Prefix.Bits(), func(a, b int) int { return b - a }); !found {
			x.lengths = slices.Insert(x.lengths, at, r.Prefix.Bits())
		}
	}
}

// about calls yield with each rule about n, the most exact first.
func (x index) about(n Name) func(yield func(Rule) bool) {
	return func(yield func(Rule) bool) {
		for _, r := range x.exact[n] {
			if !yield(r) {
				return
			}
		}
		for base := n.parent(); base != ""; base = base.parent() {
			for _, r := range x.below[base] {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// within calls yield with each rule of addresses that holds addr, the most exact first.
func (x index) within(addr netip.Addr) func(yield func(Rule) bool) {
	return func(yield func(Rule) bool) {
		for _, bits := range x.lengths {
			around, err := addr.Prefix(bits)
			if err != nil || addr.Zone() != "" { // no rule has a zone
				continue
			}
			for _, r := range x.addresses[around] {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Kept returns s without the permissions that are refused now, because an earlier version or
// other settings of the operator accepted them. So it never allows more. The error names
// the dropped rules.
func (s Spec) Kept() (Spec, error) {
	mirrors, _ := parseMap(s.Map) // Compile reports its faults
	var reasons sbxerr.Reasons
	refused := func(err error) bool {
		reasons.Add(err)
		return err != nil
	}
	if s.AirGapped && s.Mode == Open {
		_ = refused(airGapMode(s.Mode))
		s.Mode = Allow
	}
	if s.AirGapped {
		s.Resolvers = nil
	}
	s.Allow = slices.DeleteFunc(slices.Clone(s.Allow), func(text string) bool {
		r, err := ParseRule(ActAllow, text)
		if err == nil && s.AirGapped {
			err = r.checkAirGap(mirrors)
		}
		return refused(err)
	})
	s.Links = maps.Clone(s.Links)
	maps.DeleteFunc(s.Links, func(text string, _ Link) bool {
		_, err := parseLink(text, mirrors)
		return refused(err)
	})
	s.Routes = maps.Clone(s.Routes)
	maps.DeleteFunc(s.Routes, func(label string, _ Route) bool {
		_, err := s.parseRoute(label)
		return refused(err)
	})
	return s, reasons.Err()
}

// checkMode refuses rules that the mode makes void: somebody believes in them.
func (s Spec) checkMode(mode Mode) error {
	given := s.Given()
	if mode != None || given == "" {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.compile",
		fmt.Errorf("network mode %q has no rules, links and routes, but there is %s", None, given),
		fmt.Sprintf("use the network mode %q, as in --network allow --allow github.com:443, or give none", Allow))
}

// Given names the rules of s as they are written, for messages: not more than a
// few of many. It is empty if there are none.
func (s Spec) Given() string {
	const most = 3
	var first []string
	count := 0
	for _, of := range []struct {
		kind  string
		texts []string
	}{
		{"allow rule", s.Allow}, {"deny rule", s.Deny}, {"map", slices.Sorted(maps.Keys(s.Map))}, {"link", slices.Sorted(maps.Keys(s.Links))},
		{"route", slices.Sorted(maps.Keys(s.Routes))},
		{"resolver", s.resolverTexts()},
	} {
		for _, text := range of.texts[:min(len(of.texts), most-len(first))] {
			first = append(first, fmt.Sprintf("%s %q", of.kind, sbxerr.Clip(text)))
		}
		count += len(of.texts)
	}
	written := len(first)
	if s.AllowECH {
		first = append(first, "--allow-ech")
	}
	if s.Site {
		first = append(first, "--private")
	}
	if more := count - written; more > 0 {
		first = append(first, fmt.Sprintf("%d more", more))
	}
	return strings.Join(first, ", ")
}

func (s Spec) resolverTexts() (texts []string) {
	for _, r := range s.Resolvers {
		texts = append(texts, r.String())
	}
	return texts
}

// checkAirGap refuses all that would leave the site.
func (p *Policy) checkAirGap() error {
	var reasons sbxerr.Reasons
	reasons.Add(airGapMode(p.mode))
	for _, r := range p.resolvers {
		reasons.Add(refuseAirGap("resolver %s is refused: no name is looked up", r))
	}
	for _, r := range p.allow.all {
		reasons.Add(r.checkAirGap(p.mirrors))
	}
	for name, m := range p.mirrors {
		if c := Classify(m.addr); c.Grade == Public {
			reasons.Add(refuseAirGap("%s is mapped to %s, which is public", name, m.addr))
		}
	}
	return reasons.Err()
}

func airGapMode(m Mode) error {
	if m == Open {
		return refuseAirGap("network mode %q is refused", m)
	}
	return nil
}

func (r Rule) checkAirGap(mirrors map[Name]mirror) error {
	if _, mapped := mirrors[r.Name]; !mapped || r.Wildcard {
		return refuseAirGap("rule %q is refused: it is about no mapped name", r)
	}
	return nil
}

func refuseAirGap(format string, args ...any) error {
	return sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.air_gap", fmt.Errorf("air-gapped: "+format, args...),
		"ask the operator to map the name to an internal address, for example map: {mirror.example.com: 10.0.0.5}, or about air_gapped in the daemon's configuration")
}

// Mode returns the policy's mode.
func (p *Policy) Mode() Mode {
	if p == nil || p.mode == "" {
		return None
	}
	return p.mode
}

// Prefixes lists the addresses that rules allow without a name, for whoever
// leads connections to them to the gateway.
func (p *Policy) Prefixes() []netip.Prefix {
	if p == nil {
		return nil
	}
	var prefixes []netip.Prefix
	for _, r := range p.allow.all {
		if r.Name == "" {
			prefixes = append(prefixes, r.Prefix)
		}
	}
	return prefixes
}

// Over is closed when p, which On returned, is no longer in force. A waiter then asks the
// next policy.
func (p *Policy) Over() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.over
}

// End says, once, that p is no longer in force.
func (p *Policy) End() {
	if p != nil && p.over != nil {
		close(p.over)
	}
}
