package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/budget"
)

// Model is the upstream of a route for some models. The rest is the route's, its budget too.
type Model struct {
	Upstream   string    // base URL
	Credential string    `json:",omitempty"` // name of a secret; empty is none
	Placement  Placement `json:",omitempty"` // empty is Bearer
	Parameter  string    `json:",omitempty"` // name of the header or query parameter, or user of Basic
	CA         string    `json:",omitempty"` // PEM certificates that the upstream's must descend from; empty are the host's
	Private    bool      `json:",omitempty"` // the upstream may have an address that is not public
}

// firstModel is the turn in which the upstream of the first model is reached, after all others.
const firstModel = maxFallbacks + 2

// longestModel bounds the name of a model, in bytes.
const longestModel = 128

// ModelTurn returns the turn in which the upstream for a model is reached; 0 is that of the rest.
func (r *Routed) ModelTurn(model string) int {
	name, found := budget.ForModel(slices.Values(r.names), model)
	if !found || model == "" {
		return 0
	}
	return firstModel + slices.Index(r.names, name)
}

// parseModels checks the upstreams for some models.
func (r *Routed) parseModels(s Spec) error {
	switch {
	case len(r.Models) == 0:
		return nil
	case !r.Tokens:
		return errors.New("it has models, which requests of a model's API alone name: give it the preset openai or anthropic")
	case len(r.Models) > maxRoutes:
		return fmt.Errorf("it has more than %d models", maxRoutes)
	}
	r.names = slices.Sorted(maps.Keys(r.Models))
	for _, name := range r.names {
		m, err := r.parseModel(s, name)
		if err != nil {
			return fmt.Errorf("model %q: %w", sbxerr.Clip(name), err)
		}
		r.models = append(r.models, m)
	}
	return nil
}

func (r *Routed) parseModel(s Spec, name string) (*Routed, error) {
	if start := strings.TrimSuffix(name, "*"); name == "" || len(name) > longestModel || strings.Contains(start, "*") {
		return nil, errors.New("its name is none such as gpt-4o, or gpt-* for all that begin so")
	}
	own, to := r.Route, r.Models[name]
	own.Upstream, own.Credential, own.Placement, own.Parameter = to.Upstream, to.Credential, to.Placement, to.Parameter
	own.CA, own.Private, own.Models, own.Fallbacks, own.Aliases = to.CA, to.Private, nil, nil, nil
	own.ClientCert, own.ClientKey = "", ""
	m := &Routed{Route: own, Label: r.Label, paths: r.paths}
	for _, check := range []func() error{m.parseUpstream, m.checkPlacement, m.checkCA} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return m, m.allowUpstream(s)
}

// modelEffect says where requests for models go.
func (r *Routed) modelEffect() (text string) {
	for _, name := range r.names {
		m := r.Models[name]
		text += fmt.Sprintf("; for the model %s to %s", name, m.Upstream) + credentialEffect(m.Credential)
	}
	return text
}

func credentialEffect(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" with the credential %q", name)
}
