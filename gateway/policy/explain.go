package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Line is one rule of a policy and its effect, for people.
type Line struct {
	Rule   string `json:"rule"`
	Effect string `json:"effect"`
}

// Explain lists the rules of p in the order of evaluation: denials first, then permissions,
// then the default.
func (p *Policy) Explain() []Line {
	var lines []Line
	if p.Mode() != None {
		for _, r := range p.deny.all {
			lines = append(lines, Line{r.cited(), "denies " + r.what() + ", whatever allows it"})
		}
		for _, r := range p.allow.all {
			lines = append(lines, Line{r.cited(), "allows " + r.what() + r.where()})
		}
		for _, name := range slices.Sorted(maps.Keys(p.mirrors)) {
			lines = append(lines, Line{p.mirrors[name].cited(name), p.mirrors[name].effect(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Links())) {
		l := p.links[name]
		lines = append(lines, Line{l.cited(name), fmt.Sprintf("leads %s to port %d of the sandbox %s", name, l.Port, l.Sandbox)})
	}
	for _, name := range slices.Sorted(maps.Keys(p.routes)) {
		lines = append(lines, Line{p.routes[name].cited(), p.routes[name].effect(name)})
	}
	if p.Mode() != None && p.allowECH {
		lines = append(lines, Line{"allow-ech", "lets TLS clients encrypt the name that they ask for (encrypted_client_hello), whatever the rules say of it"})
	}
	for _, r := range p.resolvers {
		lines = append(lines, Line{"resolver " + r.String(), "is asked for names that are not mapped"})
	}
	return append(lines, Line{"mode " + string(p.Mode()), effects[p.Mode()]})
}

// RouteLines say what each route of s does.
func RouteLines(s Spec) (lines []string, err error) {
	p, err := Compile(s)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.routes)) {
		lines = append(lines, p.routes[name].cited()+": "+p.routes[name].effect(name))
	}
	return lines, nil
}

var effects = map[Mode]string{
	None:  "nothing may be reached",
	Allow: "nothing else may be reached; TCP only",
	Open:  "every other public name may be reached on every port, by addresses that are public and not the host's own; TCP only",
}

func (r Rule) what() string {
	host := "the host " + string(r.Name)
	switch {
	case r.Wildcard && r.Action == ActAllow:
		host = fmt.Sprintf("every name below %s (not %s itself, nor anything of a public suffix below it)", r.Name, r.Name)
	case r.Wildcard:
		host = fmt.Sprintf("every name below %s (not %s itself)", r.Name, r.Name)
	case r.Name == "" && r.Prefix.IsSingleIP():
		host = "the address " + r.Prefix.Addr().String()
	case r.Name == "":
		host = "the addresses " + r.Prefix.String()
	}
	if r.Ports == nil {
		return host + " on every port"
	}
	if r.scoped() {
		return host + " by plain HTTP, for requests " + strings.TrimPrefix(strings.Join(r.Methods, ",")+" "+r.Path, " ")
	}
	return host + " on " + portNames(r.Ports)
}

// portNames lists ports for people.
func portNames(ports []uint16) string {
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ", "), "[]")
	if len(ports) == 1 {
		return "port " + list
	}
	return "ports " + list
}

func (r Rule) where() string {
	if r.Opaque {
		r.Opaque = false
		return ", unread on ports 80 and 443: a client there need not name its host" + r.where()
	}
	switch {
	case r.Private:
		return ", also where that is not public"
	case r.Name != "":
		return ", by addresses that are public and not the host's own"
	}
	return ""
}

func (m mirror) effect(name Name) string {
	if m.port == 0 {
		return fmt.Sprintf("leads %s to %s, on ports 80 and 443 and those that a rule adds", name, m.addr)
	}
	return fmt.Sprintf("leads %s to %s port %d, from ports 80 and 443 and those that a rule adds", name, m.addr, m.port)
}
