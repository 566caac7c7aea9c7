package policy

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Place is where a route is reached inside, by plain HTTP.
type Place struct {
	Route Name // of which it is a place
	Host  Name // that is connected to
	Port  uint16
	Below string // what paths have there before the route's; it has no slash at its end
}

// socket is what a client connects to.
type socket struct {
	name Name
	port uint16
}

// URL is the base URL of the place, without a slash at its end.
func (p Place) URL() string {
	host := string(p.Host)
	if p.Port != RoutePort {
		host = net.JoinHostPort(host, strconv.Itoa(int(p.Port)))
	}
	return "http://" + host + p.Below
}

// RouteAt returns the place of a route that is reached at port of name.
func (p *Policy) RouteAt(name Name, port uint16) (at Place, r *Routed, ok bool) {
	if p == nil {
		return at, nil, false
	}
	if r, ok = p.routes[name]; ok {
		return Place{Route: name, Host: name, Port: RoutePort}, r, true
	}
	at, ok = p.places[socket{name, port}]
	return at, p.routes[at.Route], ok
}

// HasRoute reports whether a route is reached at some port of name.
func (p *Policy) HasRoute(name Name) bool {
	_, ok := p.Routed(name)
	return ok || p != nil && len(p.placePorts(name)) > 0
}

// placePorts are the ports of name at which routes are reached.
func (p *Policy) placePorts(name Name) (ports []uint16) {
	for at := range p.places {
		if at.name == name {
			ports = append(ports, at.port)
		}
	}
	slices.Sort(ports)
	return ports
}

// placesOf finds the further places of routes.
func placesOf(routes map[Name]*Routed) (map[socket]Place, error) {
	places := map[socket]Place{}
	var reasons sbxerr.Reasons
	for name, r := range routes {
		for _, at := range r.places {
			at.Route = name
			if other, taken := places[socket{at.Host, at.Port}]; taken {
				reasons.Add(fmt.Errorf("the alias %s of two routes: %s and %s", at.URL(), min(other.Route, name), max(other.Route, name)))
			}
			places[socket{at.Host, at.Port}] = at
		}
	}
	return places, sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.alias", reasons.Err(), "leave it to one of them")
}

func (r *Routed) parseAliases() error {
	if len(r.Aliases) > maxRoutes {
		return fmt.Errorf("it has more than %d aliases", maxRoutes)
	}
	for _, text := range r.Aliases {
		at, err := parseAlias(text)
		if err != nil {
			return fmt.Errorf("alias %q: %w", sbxerr.Clip(text), err)
		}
		r.places = append(r.places, at)
	}
	return nil
}

// parseAlias reads HOST[:PORT][/PATH].
func parseAlias(text string) (at Place, err error) {
	where, path, _ := strings.Cut(text, "/")
	host, port, given := strings.Cut(where, ":")
	at.Port = RoutePort
	if given {
		if at.Port, err = parsePort(port); err != nil {
			return at, err
		}
	}
	if path = strings.TrimSuffix(path, "/"); path != "" {
		at.Below = "/" + path
	}
	at.Host, err = canonical(host)
	switch {
	case err != nil:
		return at, err
	case string(at.Host) != host:
		return at, errors.New("its name is not in small letters, without a dot at its end")
	case at.Host.inRouteZone():
		return at, fmt.Errorf("names below %s are those of the routes themselves", RouteZone)
	case at.Port == defaultPorts[1]:
		return at, errors.New("port 443 is for TLS, and a route is reached by plain HTTP")
	case strings.ContainsAny(at.Below, "%?#"):
		return at, errors.New("its path has more than plain segments")
	}
	return at, CheckPath(at.Below + "/")
}
