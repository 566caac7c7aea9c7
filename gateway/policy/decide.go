package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Decision says whether a destination is allowed, why, and how to change that. The zero
// Decision refuses.
type Decision struct {
	Allowed bool
	// Rule caused the decision: "allow github.com:443", "deny *.example.com",
	// "map pypi.org=10.1.2.3", "mode none" if no rule matches, or "name" if none could.
	Rule string
	// Private tells that the rule lets a name lead to addresses that are not public.
	// Where the address is known, it is not public itself. Of a refusal: Needs is private.
	Private bool
	Scoped  bool // the rules are about some requests by plain HTTP alone: see DecideRequest

	Code   sbxerr.Code // of a refusal: EgressDenied or EgressAddress
	Reason string      // of a refusal, one sentence
	Remedy string      // of a refusal: how to allow it, for people
	Needs  string      // of a refusal: the rule that would allow it; empty where none can
}

// Err is a refusal as an error, nil if d allows.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return sbxerr.WithRemedy(d.Code, "policy.decide", fmt.Errorf("%s (%s)", d.Reason, d.Rule), d.Remedy)
}

// modeOpen is the rule of destinations that only the mode open allows.
const modeOpen = "mode " + string(Open)

// Decide says whether port of name may be connected to. Where it leads is
// decided by DecideResolved.
func (p *Policy) Decide(name Name, port uint16) Decision {
	return p.decide(name, port, join(name, port), needed(name, port))
}

// decide is Decide, whose refusals are about target, and say that it needs the rule needs.
func (p *Policy) decide(name Name, port uint16, target, needs string) Decision {
	if p.Mode() == None || name == "" || port == 0 {
		return p.refuse(Decision{Rule: "mode " + string(p.Mode()), Needs: needs}, target, "is refused: nothing may be reached")
	}
	for r := range p.deny.about(name) {
		if r.covers(port) {
			return p.denied(r, target)
		}
	}
	if err := name.checkAsked(); err != nil {
		d := p.refuse(Decision{Rule: "name"}, target, "is refused: "+err.Error())
		d.Remedy = remedyFor(err, d.Remedy)
		return d
	}
	if name.inRouteZone() {
		return p.decideRoute(name, port, target)
	}
	if _, r, ok := p.RouteAt(name, port); ok {
		return Decision{Allowed: true, Rule: r.cited()}
	}
	if l, ok := p.links[name]; ok {
		return p.decideLink(l, name, port, target)
	}
	if m, ok := p.mirrors[name]; ok && slices.Contains(defaultPorts, port) {
		return Decision{Allowed: true, Rule: m.cited(name)}
	}
	if r, ok := p.allowing(name, port); ok {
		return Decision{Allowed: true, Rule: r.cited(), Private: r.Private, Scoped: r.scoped()}
	}
	if p.opens(name) {
		return Decision{Allowed: true, Rule: modeOpen}
	}
	return p.refuse(Decision{Rule: "mode " + string(p.mode), Needs: needs}, target, "is allowed by no rule"+p.passedOver(name, port))
}

// allowing is the rule that allows port of name: the most exact, but one with options before
// one without, and private before opaque. Rules about some requests count where no other does.
func (p *Policy) allowing(name Name, port uint16) (best Rule, found bool) {
	for r := range p.permitting(name, port) {
		if r.scoped() && (found && !best.scoped() || p.opens(name)) {
			continue
		}
		if !found || best.scoped() && !r.scoped() || r.Private && !best.Private || r.Opaque && !best.Opaque && r.Private == best.Private {
			best, found = r, true
		}
	}
	return best, found
}

// permitting calls yield with each rule that allows port of name, the most exact first.
func (p *Policy) permitting(name Name, port uint16) func(yield func(Rule) bool) {
	return func(yield func(Rule) bool) {
		for r := range p.allow.about(name) {
			if r.covers(port) && !(r.Wildcard && name.suffixBelow(r.Name) != "") && !yield(r) {
				return
			}
		}
	}
}

// passedOver says which rule looks as if it allowed port of name and does not,
// empty where none does.
func (p *Policy) passedOver(name Name, port uint16) string {
	for r := range p.allow.about(name) {
		if r.Wildcard && r.covers(port) {
			return fmt.Sprintf(": %s is not about it, as anybody may have a name below the public suffix %s", r, name.suffixBelow(r.Name))
		}
		if r.scoped() && !r.covers(port) {
			return fmt.Sprintf(": %q is about plain HTTP alone, as nobody reads methods and paths elsewhere; a route has them for HTTPS too", r)
		}
	}
	return ""
}

// public reports whether every resolver of the internet may know n. Where it
// leads is looked at besides.
func (n Name) public() bool {
	return n.labels() > 1 && n.checkAsked() == nil && n.checkExact(false) == nil
}

// opens reports whether the mode open allows name.
func (p *Policy) opens(name Name) bool {
	return p.mode == Open && !name.inRouteZone() && (name.public() || p.site && name.checkAsked() == nil && name.checkExact(true) == nil)
}

// DecideLookup says whether name may be resolved: whether it may be connected
// to on any port. Which one is wanted is not known, so a refusal names none.
func (p *Policy) DecideLookup(name Name) Decision {
	if p.Mode() == None {
		return p.refuseLookup(name)
	}
	if d := p.Decide(name, defaultPorts[1]); d.Allowed {
		return d
	}
	for r := range p.deny.about(name) {
		if r.Ports == nil {
			return p.denied(r, string(name))
		}
	}
	if p.opens(name) {
		return Decision{Allowed: true, Rule: modeOpen}
	}
	for _, port := range p.named(name) {
		if other := p.Decide(name, port); other.Allowed {
			return other
		}
	}
	return p.refuseLookup(name)
}

// refuseLookup is the refusal of a name of which no port is allowed.
func (p *Policy) refuseLookup(name Name) (d Decision) {
	for _, port := range slices.Backward(defaultPorts) {
		d = p.decide(name, port, string(name), neededName(name))
		if d.Needs != "" {
			break // on the other port it is denied
		}
	}
	return d
}

// named are the ports on which anything may allow name outside of mode open.
func (p *Policy) named(name Name) []uint16 {
	ports := slices.Clone(defaultPorts)
	if l, ok := p.links[name]; ok {
		ports = append(ports, l.Port)
	}
	for r := range p.allow.about(name) {
		ports = append(ports, r.Ports...)
	}
	return append(ports, p.placePorts(name)...)
}

// DecideResolved says whether port of name may be connected to by addr, which
// it resolved to. For a mapped name addr is that of the mirror.
func (p *Policy) DecideResolved(name Name, port uint16, addr netip.Addr) Decision {
	d := p.Decide(name, port)
	if _, linked := p.Linked(name); linked || !d.Allowed { // a link has no address that could be judged
		return d
	}
	dial := port
	to, mapped := p.Mapped(name, port)
	if mapped {
		dial = to.Port()
	}
	if r, ok := p.denying(addr, dial); ok {
		return p.denied(r, leading(name, port, addr))
	}
	if mapped {
		if addr == to.Addr() {
			return d
		}
		return p.refuse(Decision{Rule: p.mirrors[name].cited(name)}, leading(name, port, addr), "is refused: the name is mapped")
	}
	class := p.classify(addr)
	if class.Grade == Public || class.Grade == Private && (d.Private || p.onSite(class, addr)) {
		d.Private = class.Grade == Private
		return d
	}
	if by, ok := p.allowingAddress(class, addr, port); ok {
		by.Scoped = d.Scoped
		return by
	}
	return p.notPublic(d, class, name, port, addr)
}

// notPublic is the refusal of a name that is allowed but leads elsewhere.
func (p *Policy) notPublic(d Decision, class Class, name Name, port uint16, addr netip.Addr) Decision {
	refusal := Decision{Rule: d.Rule, Code: sbxerr.EgressAddress}
	switch class.Grade {
	case Private:
		refusal.Needs, refusal.Private = WithPrivate(needed(name, port)), true
	case Spelled:
		refusal.Needs = neededAddress(class, addr, port)
	}
	return p.refuse(refusal, leading(name, port, addr), "is refused: that address is not public ("+class.Name+")")
}

// DecideAddress says whether port of addr may be connected to without a name.
// Only a rule of addresses allows that, in every mode.
func (p *Policy) DecideAddress(addr netip.Addr, port uint16) Decision {
	target := netip.AddrPortFrom(addr, port).String()
	if p.Mode() == None || port == 0 {
		refusal := Decision{Rule: "mode " + string(p.Mode()), Needs: neededAddress(Classify(addr), addr, port)}
		return p.refuse(refusal, target, "is refused: nothing may be reached")
	}
	if r, ok := p.denying(addr, port); ok {
		return p.denied(r, target)
	}
	class := p.classify(addr)
	if by, ok := p.allowingAddress(class, addr, port); ok {
		return by
	}
	refusal := Decision{Rule: "mode " + string(p.Mode()), Needs: neededAddress(class, addr, port)}
	why := noWay(single(addr))
	switch {
	case why != "":
		return p.refuse(refusal, target, "is refused: "+why)
	case refusal.Needs == "":
		return p.refuse(refusal, target, "is refused: no rule reaches it ("+class.Name+")")
	case class.Grade != Public:
		return p.refuse(refusal, target, "is an address that no rule allows, and not public ("+class.Name+")")
	}
	return p.refuse(refusal, target, "is an address that no rule allows; connect by name where you can")
}

// DecidePacket returns the refusal of a packet of a protocol other than TCP, such as "udp".
// name may be empty. Port 0 means no port.
func (p *Policy) DecidePacket(protocol string, name Name, to netip.AddrPort) Decision {
	target := to.String()
	switch {
	case to.Port() == 0:
		target = to.Addr().String()
	case name != "":
		target = join(name, to.Port())
	}
	why := "is refused: only TCP leads out of a sandbox"
	if protocol == "udp" && to.Port() == dnsPort {
		why += ", and the resolver is the one in /etc/resolv.conf"
	}
	return p.refuse(Decision{Rule: "mode " + string(p.Mode())}, protocol+" to "+target, why)
}

// dnsPort is where resolvers listen.
const dnsPort = 53

// allowingAddress decides by the rules of addresses alone: one must be for the class of
// addr.
func (p *Policy) allowingAddress(class Class, addr netip.Addr, port uint16) (Decision, bool) {
	for r := range p.allow.within(addr) {
		enough := class.Grade == Public || class.Grade == Private && r.Private || class.Grade == Spelled && r.Private && r.Prefix.IsSingleIP()
		if enough && r.covers(port) {
			return Decision{Allowed: true, Rule: r.cited(), Private: class.Grade != Public}, true
		}
	}
	return Decision{}, false
}

// denying is the rule that denies port of addr, or of an IPv4 address inside it.
func (p *Policy) denying(addr netip.Addr, port uint16) (Rule, bool) {
	for _, a := range append(carried(addr), addr) {
		for r := range p.deny.within(a) {
			if r.covers(port) {
				return r, true
			}
		}
	}
	return Rule{}, false
}

func (p *Policy) denied(r Rule, target string) Decision {
	return Decision{
		Rule: r.cited(), Code: sbxerr.EgressDenied, Reason: target + " is denied",
		Remedy: fmt.Sprintf("nothing allows it while the rule %q is there: deny beats allow", r.cited()),
	}
}

// refuse fills in the text for people. d holds the rule and its needs.
func (p *Policy) refuse(d Decision, target, why string) Decision {
	if d.Code == "" {
		d.Code = sbxerr.EgressDenied
	}
	d.Reason = target + " " + why
	switch {
	case d.Needs != "" && !p.mayHave(d.Needs):
		d.Needs, d.Private, d.Remedy = "", false, "the host is air-gapped: only the operator can let it be reached, by mapping the name to an internal address (network.map)"
	case d.Needs == "":
		d.Remedy = "no rule can allow it"
	case p.Mode() == None:
		d.Remedy = "start the sandbox with --network allow --allow " + d.Needs
	default:
		d.Remedy = "allow it with --allow " + quoted(d.Needs)
	}
	return d
}

// quoted is a rule as shells take it.
func quoted(rule string) string {
	if strings.Contains(rule, " ") {
		return "'" + rule + "'"
	}
	return rule
}

// mayHave reports whether a rule that allows can be added at all.
func (p *Policy) mayHave(rule string) bool {
	if p == nil || !p.airGapped {
		return true
	}
	r, err := ParseRule(ActAllow, rule)
	return err == nil && r.checkAirGap(p.mirrors) == nil
}

// needed is the least rule for port of name, empty if there can be none.
func needed(name Name, port uint16) string {
	if port == 0 || neededName(name) == "" {
		return ""
	}
	if name.checkExact(false) != nil {
		return WithPrivate(join(name, port))
	}
	return join(name, port)
}

// neededName is the rule for name on the ports that rules mean which name none, empty
// if there can be none.
func neededName(name Name) string {
	switch {
	case name == "" || name.checkAsked() != nil || name.checkExact(true) != nil:
		return ""
	case name.checkExact(false) != nil:
		return WithPrivate(string(name))
	}
	return string(name)
}

// The options, as they end a rule.
const (
	private = ",private"
	opaque  = ",opaque"
)

// WithPrivate is rule with the option private.
func WithPrivate(rule string) string { return strings.TrimSuffix(rule, private) + private }

// neededAddress is the least rule for port of addr, empty if there can be none.
func neededAddress(class Class, addr netip.Addr, port uint16) string {
	if port == 0 || class.Grade == Never || Pool.Contains(addr) || noWay(single(addr)) != "" {
		return ""
	}
	r := Rule{Action: ActAllow, Prefix: single(addr), Ports: []uint16{port}, Private: class.Grade != Public}
	return r.String()
}

// single is addr alone.
func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// leading names a target together with the address of its name.
func leading(name Name, port uint16, addr netip.Addr) string {
	return fmt.Sprintf("%s, which leads to %s,", join(name, port), addr)
}

func join(name Name, port uint16) string { return string(name) + ":" + strconv.Itoa(int(port)) }
