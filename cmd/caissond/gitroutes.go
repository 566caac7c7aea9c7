package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/route/git"
	"github.com/caisson-run/caisson/runtime/plan"
)

// gitScope is what the route label passes on of git, nil if it is of another preset.
func gitScope(label string, r config.Route) (*git.Scope, error) {
	if r.Preset != gitPreset {
		var errs []error
		for _, k := range []struct {
			key string
			set bool
		}{{"repositories", r.Repositories != nil && r.Preset != ociPreset}, {"access", r.Access != ""}, {"branches", r.Branches != nil}} {
			if k.set {
				errs = append(errs, fmt.Errorf("routes.%s.%s: only a route with preset: %s has it", label, k.key, gitPreset))
			}
		}
		return nil, errors.Join(errs...)
	}
	s := &git.Scope{Repositories: r.Repositories, Write: r.Access == "write", Branches: r.Branches}
	switch r.Access {
	case "", "read", "write":
	default:
		return nil, fmt.Errorf("routes.%s.access: there is no access %q, only read and write", label, r.Access)
	}
	if r.Branches != nil && len(r.Branches) == 0 {
		return nil, fmt.Errorf("routes.%s.branches: the list is empty: leave it away for all branches, or write access: read", label)
	}
	return s, nil
}

// rewrites have git ask routes for what is named by the URLs of their upstreams.
type rewrites struct {
	list [][2]string       // of every sandbox: base URL of a route, and the beginning of URLs that lead there
	by   map[string]string // the route of each beginning
}

// add returns the git settings that rewrite URLs of an upstream to base, also those for SSH.
func (w *rewrites) add(key, base, upstream string) (pairs [][2]string, err error) {
	u, err := url.Parse(upstream)
	if err != nil || u.Host == "" {
		return nil, nil // the policy refuses it
	}
	host, name := strings.ToLower(u.Host), strings.ToLower(u.Hostname())
	below := strings.TrimSuffix(u.EscapedPath(), "/") + "/"
	for _, from := range []string{u.Scheme + "://" + host + below, "ssh://git@" + name + below, "git@" + name + ":" + below[1:]} {
		if other := w.by[from]; other != "" {
			return nil, fmt.Errorf("%s: %s leads to the same upstream: give each the owner of its repositories, as in upstream: https://git.example/acme", key, other)
		}
		w.by[from] = key
		pairs = append(pairs, [2]string{base + "/", from})
	}
	return pairs, nil
}

// set has those of every sandbox in git's own variables.
func (w *rewrites) set(v *variables) {
	for i, text := range plan.GitEnv(nil, w.list) {
		if i > 0 {
			v.list = append(v.list, text)
			continue
		}
		name, value, _ := strings.Cut(text, "=") // the count
		v.set(w.by[w.list[0][1]], name, value)
	}
}
