package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Link leads a name to a port of another sandbox. The name has one label: no public
// host is called so, and so none is hidden by a link.
type Link struct {
	Sandbox string // its ID
	Port    uint16 // inside of it, and the one to connect to
}

// parseLinks checks the links of a policy as a whole.
func parseLinks(written map[string]Link, mirrors map[Name]mirror) (map[Name]Link, error) {
	links := map[Name]Link{}
	var errs []error
	for _, text := range slices.Sorted(maps.Keys(written)) {
		name, err := parseLink(text, mirrors)
		l := written[text]
		if err == nil && (l.Sandbox == "" || l.Port == 0) {
			err = fmt.Errorf("link %q leads to no port of a sandbox", text)
		}
		errs = append(errs, err)
		links[name] = l
	}
	return links, errors.Join(errs...)
}

// parseLink reads the name of a link beside those that the operator mapped.
func parseLink(text string, mirrors map[Name]mirror) (Name, error) {
	name, err := ParseLinkName(text)
	if _, mapped := mirrors[name]; err == nil && mapped {
		err = fmt.Errorf("link %q: the name is mapped already", text)
	}
	return name, err
}

// ParseLinkName reads the name of a link, in its canonical form. Others are refused
// with code sbxerr.NetPolicy.
func ParseLinkName(text string) (Name, error) {
	const op = "policy.link"
	name, err := canonical(text)
	switch {
	case err != nil:
	case string(name) != text:
		err = fmt.Errorf("is written %q", name)
	case name.labels() > 1:
		err = errors.New("has a dot: it could hide a public host")
	case name.checkOwn() != nil:
		err = errors.New("is the sandbox's own")
	}
	return name, sbxerr.WithRemedy(sbxerr.NetPolicy, op, wrapName(text, err), "write a name without a dot, such as db")
}

func wrapName(text string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("link name %q: %w", sbxerr.Clip(text), err)
}

// Linked returns where a name leads that is a link.
func (p *Policy) Linked(name Name) (Link, bool) {
	if p == nil {
		return Link{}, false
	}
	l, ok := p.links[name]
	return l, ok
}

// Links returns all links, by their names.
func (p *Policy) Links() map[Name]Link {
	if p == nil {
		return nil
	}
	return p.links
}

// decideLink is about a name that is a link. See decide.
func (p *Policy) decideLink(l Link, name Name, port uint16, target string) Decision {
	if port == l.Port {
		return Decision{Allowed: true, Rule: l.cited(name)}
	}
	return p.refuse(Decision{Rule: l.cited(name)}, target, fmt.Sprintf("is refused: the link is for port %d", l.Port))
}

// cited is the link of name as decisions name it.
func (l Link) cited(name Name) string { return fmt.Sprintf("link %s=%s:%d", name, l.Sandbox, l.Port) }
