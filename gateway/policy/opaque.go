package policy

import (
	"slices"
	"strings"
)

// Opaque reports whether a rule says that connections to port of name are not read, so that
// a client need not name its host. The rules of a name add up: one that says so is enough.
func (p *Policy) Opaque(name Name, port uint16) bool {
	if p.Mode() == None || !slices.Contains(readPorts, port) {
		return false
	}
	for r := range p.permitting(name, port) {
		if r.Opaque {
			return true
		}
	}
	return false
}

// NeededOpaque is the least rule for port of name by which connections are not read, empty if
// there can be none.
func (p *Policy) NeededOpaque(name Name, port uint16) string {
	rule := needed(name, port)
	if rule == "" || !slices.Contains(readPorts, port) || !p.mayHave(rule) {
		return ""
	}
	if p.Decide(name, port).Private {
		rule = WithPrivate(rule)
	}
	return rule + opaque
}

// CitesOpaque reports whether rule, as decisions name it, has the option.
func CitesOpaque(rule string) bool {
	text, allows := strings.CutPrefix(rule, string(ActAllow)+" ")
	r, err := ParseRule(ActAllow, text)
	return allows && err == nil && r.Opaque
}
