package policy

import (
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// DecideECH decides on a TLS hello to port of name that has encrypted_client_hello. The
// server may take another name out of it, so it is refused where the decision depends on
// the name.
func (p *Policy) DecideECH(name Name, port uint16) Decision {
	d := p.Decide(name, port)
	if !d.Allowed || p.allowECH {
		return d
	}
	rule, found := p.byName(d, port)
	if !found {
		return d
	}
	return Decision{
		Rule: rule, Code: sbxerr.EgressECH,
		Reason: fmt.Sprintf("the TLS hello to %s may hide another name (encrypted_client_hello)", join(name, port)),
		Remedy: "turn encrypted client hello (ECH) and its GREASE off in the client, or start the sandbox with --allow-ech",
	}
}

// byName is the rule by which d, which allows port of a name, depends on that name: what
// allows it, or in the mode open any denial of a name, as the hidden one may be denied.
func (p *Policy) byName(d Decision, port uint16) (rule string, found bool) {
	if d.Rule != modeOpen {
		return d.Rule, true
	}
	for _, r := range p.deny.all {
		if r.Name != "" && r.covers(port) {
			return r.cited(), true
		}
	}
	return "", false
}
