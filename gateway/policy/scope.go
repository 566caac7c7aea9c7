package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// scopedPort is the port of rules with methods or a path: nothing else is read as HTTP.
const scopedPort = 80

// scoped reports whether r is about some requests alone.
func (r Rule) scoped() bool { return len(r.Methods) > 0 || r.Path != "" }

// parseMethods takes METHOD[,METHOD…] and a space from the beginning of a rule.
func (r *Rule) parseMethods(text string) (rest string, err error) {
	methods, rest, found := strings.Cut(text, " ")
	if !found || rest == "" || strings.Trim(methods, "ABCDEFGHIJKLMNOPQRSTUVWXYZ,") != "" || methods == "" {
		return text, nil
	}
	r.Methods = strings.Split(methods, ",")
	return rest, checkMethods(r.Methods)
}

// checkMethods refuses methods that no rule and no route passes on.
func checkMethods(methods []string) error {
	for _, m := range methods {
		if m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || slices.Contains(refusedMethods, m) {
			return fmt.Errorf("%q is no method that is passed on, such as GET", sbxerr.Clip(m))
		}
	}
	return nil
}

// parsePath takes a path from the end of a host of a name.
func (r *Rule) parsePath(dest string) (rest string, err error) {
	rest, path, found := strings.Cut(dest, "/")
	if host, _, _ := strings.Cut(rest, ":"); !found || strings.Trim(host, "0123456789.") == "" || strings.HasPrefix(rest, "[") || looksIPv6(dest) {
		return dest, nil
	}
	r.Path = "/" + path
	if strings.ContainsAny(path, "?#") {
		return rest, errors.New("has a query or a fragment, of which rules say nothing: write the path alone")
	}
	if r.pattern, err = parsePattern(r.Path); err != nil {
		return rest, fmt.Errorf("its path %w", err)
	}
	return rest, nil
}

// checkScope refuses methods and a path where nobody reads them.
func (r Rule) checkScope() error {
	switch {
	case !r.scoped():
	case r.Action == ActDeny:
		return errors.New("denies a host, not methods and paths: leave them out, and allow those that are meant")
	case r.Name == "":
		return errors.New("has methods or a path for addresses, where HTTP is not read: write a name")
	case !slices.Equal(r.Ports, []uint16{scopedPort}):
		return errors.New("has methods or a path, which are for plain HTTP on port 80: leave the port out; a route has them for HTTPS too")
	case r.Opaque:
		return errors.New("has methods or a path, and the option \"opaque\", by which nothing is read")
	}
	return nil
}

// passes reports whether r, which has a scope, is about a request.
func (r Rule) passes(method string, segments []string) bool {
	return !slices.Contains(refusedMethods, method) && (len(r.Methods) == 0 || slices.Contains(r.Methods, method)) && (r.Path == "" || r.pattern.matches(segments))
}

// includes reports whether r is about each request that other is about.
func (r Rule) includes(other Rule) bool {
	methods := len(r.Methods) == 0 || len(other.Methods) > 0 && !slices.ContainsFunc(other.Methods, func(m string) bool { return !slices.Contains(r.Methods, m) })
	return !r.scoped() || other.scoped() && methods && (r.Path == "" || other.Path != "" && r.pattern.includes(other.pattern))
}

// includes reports whether p matches each path that other matches.
func (p pattern) includes(other pattern) bool {
	for i, want := range p {
		switch {
		case want == anySegments:
			return true
		case i >= len(other) || other[i] == anySegments || want == anySegment && other[i] == "" || want != anySegment && want != other[i]:
			return false
		}
	}
	return len(p) == len(other)
}

// DecideRequest says whether a request by plain HTTP to port of name may pass. Its path is as on
// the wire, without the query.
func (p *Policy) DecideRequest(name Name, port uint16, method, escaped string) Decision {
	d := p.Decide(name, port)
	if !d.Scoped {
		return d
	}
	segments, err := segmentsOf(escaped)
	if err == nil && strings.Contains(escaped, "#") {
		err = errors.New("has a fragment")
	}
	target := fmt.Sprintf("%s %s", sbxerr.Clip(method), join(name, port)+sbxerr.Clip(escaped))
	if err != nil {
		return p.refuse(Decision{Rule: d.Rule}, target, "is refused: its path is not in its plain form: it "+err.Error())
	}
	for r := range p.permitting(name, port) {
		if r.passes(method, segments) {
			return Decision{Allowed: true, Rule: r.cited(), Private: d.Private, Scoped: true}
		}
	}
	needs := method + " " + string(name) + escaped
	if _, err := ParseRule(ActAllow, needs); err != nil || strings.ContainsAny(needs, "*'") {
		needs = ""
	}
	return p.refuse(Decision{Rule: "mode " + string(p.mode), Needs: needs}, target, "is allowed by no rule: those of the host are about other methods or paths")
}
