package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// ForChild returns the policy of a child of a sandbox with the policy s: it allows nothing
// that s refuses. The child has the rules allow of its own, as far as s covers them; nil
// takes those of s. It is denied what s denies, and deny besides. It has the map, the
// resolvers and the ECH of s, but no links: a link leads to a sandbox of its parent's choice.
// It has those routes of s that it names; all where it names neither rules nor routes.
//
// The error names the rules that are left out, with code sbxerr.NetChild, and the policy is
// usable without them. The zero Spec comes with another error, or where the mode of s is none.
func (s Spec) ForChild(allow, deny, routes []string) (Spec, error) {
	const op = "policy.child"
	p, err := Compile(s)
	if err != nil {
		return Spec{}, err
	}
	if p.Mode() == None {
		return Spec{}, sbxerr.WithRemedy(sbxerr.NetChild, op, fmt.Errorf("the parent has the network mode %q", None),
			"leave --network and --allow away, or have the parent made with a network")
	}
	child := Spec{Mode: Allow, Deny: slices.Concat(s.Deny, deny), Map: s.Map, AllowECH: s.AllowECH, Resolvers: s.Resolvers, AirGapped: s.AirGapped}
	inherited := allow == nil && len(routes) == 0
	if inherited {
		allow, child.Routes = s.Allow, s.Routes
	}
	var reasons sbxerr.Reasons
	for _, label := range routes {
		r, ok := s.Routes[label]
		if !ok {
			reasons.Add(fmt.Errorf("the parent has no route %q", sbxerr.Clip(label)))
			continue
		}
		if child.Routes == nil {
			child.Routes = map[string]Route{}
		}
		child.Routes[label] = r
	}
	for _, text := range allow {
		err := p.checkCovered(text)
		switch {
		case err == nil:
			child.Allow = append(child.Allow, text)
		case !inherited: // of its own rules a parent covers all but those that a link hides
			reasons.Add(err)
		}
	}
	if err := reasons.Err(); err != nil {
		return child, sbxerr.WithRemedy(sbxerr.NetChild, op, err, p.remedyChild(s.Allow))
	}
	return child, nil
}

// remedyChild names a few of the rules of p, as they are written, that a child may have.
func (p *Policy) remedyChild(written []string) string {
	const most = 3
	var may []string
	more := 0
	for _, text := range written {
		switch {
		case p.checkCovered(text) != nil: // a link hides it
		case len(may) < most:
			may = append(may, sbxerr.Clip(text))
		default:
			more++
		}
	}
	if more > 0 {
		may = append(may, fmt.Sprintf("%d more", more))
	}
	if p.mode == Open {
		may = append(may, "public names")
	}
	if len(p.mirrors) > 0 {
		may = append(may, "mapped names on ports 80 and 443")
	}
	if len(may) == 0 {
		return "the parent may reach nothing; have its policy widened from outside: caisson update --allow"
	}
	return "allow what the parent may reach (" + strings.Join(may, ", ") + "), or have its policy widened from outside: caisson update --allow"
}

// checkCovered refuses a rule by which a child could reach what p refuses.
func (p *Policy) checkCovered(text string) error {
	r, err := ParseRule(ActAllow, text)
	if err != nil {
		return err
	}
	left := p.uncovered(r)
	if len(left) == 0 {
		return nil
	}
	why := errors.New("the parent's policy does not cover it")
	public, read := r, r
	public.Private, read.Opaque = false, false
	_, linked := p.links[r.Name]
	switch {
	case linked && !r.Wildcard:
		why = errors.New("the parent has a link of this name, and a child has none")
	case r.Private && len(p.uncovered(public)) == 0:
		why = fmt.Errorf("the parent's policy does not cover the option %q", private[1:])
	case r.Opaque && len(p.uncovered(read)) == 0:
		why = fmt.Errorf("the parent's policy does not cover the option %q", opaque[1:])
	case len(left) < len(r.Ports):
		why = fmt.Errorf("the parent's policy does not cover %s", portNames(left))
	}
	return fmt.Errorf("allow rule %q: %w", sbxerr.Clip(text), why)
}

// uncovered returns those ports of r, which allows, on which p may refuse what r allows.
func (p *Policy) uncovered(r Rule) []uint16 {
	if _, linked := p.links[r.Name]; linked && !r.Wildcard { // no rule of p counts for it
		return r.Ports
	}
	if r.Name != "" && !r.Private && !r.Opaque && (r.Wildcard && p.mode == Open || p.opens(r.Name)) {
		return nil // names below a wildcard that may be written are public
	}
	left := slices.Clone(r.Ports)
	if _, mapped := p.mirrors[r.Name]; mapped && !r.Wildcard && !r.Private && !r.Opaque {
		left = slices.DeleteFunc(left, func(port uint16) bool { return slices.Contains(defaultPorts, port) })
	}
	for _, by := range p.allow.around(r) {
		if (by.Private || !r.Private) && (by.Opaque || !r.Opaque) && by.includes(r) {
			left = slices.DeleteFunc(left, by.covers)
		}
	}
	return left
}

// around returns the rules of x that are about everything that r is about.
func (x index) around(r Rule) (rules []Rule) {
	if r.Name == "" {
		return x.aroundAddresses(r)
	}
	name := r.Name
	if r.Wildcard {
		name = "any." + r.Name
	}
	for by := range x.about(name) {
		if by.Wildcard || !r.Wildcard {
			rules = append(rules, by)
		}
	}
	return slices.DeleteFunc(rules, func(by Rule) bool { return by.Wildcard && r.Name.suffixBelow(by.Name) != "" })
}

// aroundAddresses is around for a rule of addresses. An address that must be spelled is
// covered by the rule that spells it alone.
func (x index) aroundAddresses(r Rule) (rules []Rule) {
	spelled := r.Prefix.IsSingleIP() && Classify(r.Prefix.Addr()).Grade == Spelled
	for by := range x.within(r.Prefix.Addr()) {
		if by.Prefix.Bits() <= r.Prefix.Bits() && (!spelled || by.Prefix == r.Prefix) {
			rules = append(rules, by)
		}
	}
	return rules
}
