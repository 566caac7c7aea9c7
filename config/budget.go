package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// Budget is the most that requests by a route may take together. What is absent is not bounded.
type Budget struct {
	Requests Count `yaml:"requests" json:"requests,omitempty"`
	Tokens   Count `yaml:"tokens" json:"tokens,omitempty" jsonschema:"description=That models read and wrote"`
	Bytes    Size  `yaml:"bytes" json:"bytes,omitempty" jsonschema:"description=Of bodies\\, both ways"`
	Cost     Money `yaml:"cost" json:"cost,omitempty" jsonschema:"description=In the unit of prices"`
}

// Budgets are those of a route by what shares them.
type Budgets struct {
	Sandbox *Budget `yaml:"sandbox" json:"sandbox,omitempty" jsonschema:"description=Of each sandbox\\, with those made inside"`
	Session *Budget `yaml:"session" json:"session,omitempty" jsonschema:"description=Of the sandboxes of one session of a user"`
	Hour    *Budget `yaml:"hour" json:"hour,omitempty" jsonschema:"description=Of all sandboxes of one user and profile\\, in each hour of the clock"`
}

// Price is what a million tokens cost, in any one unit.
type Price struct {
	Input  Money  `yaml:"input" json:"input" jsonschema:"description=That the model reads"`
	Cached *Money `yaml:"cached" json:"cached,omitempty" jsonschema:"description=That it reads from its cache; absent is as input"`
	Stored *Money `yaml:"stored" json:"stored,omitempty" jsonschema:"description=That it puts into its cache; absent is as input"`
	Output Money  `yaml:"output" json:"output" jsonschema:"description=That it writes"`
}

// Count is a number of things, at least 1.
type Count int64

// UnmarshalYAML reads a whole number. A budget of 0 is a route that nobody can use.
func (c *Count) UnmarshalYAML(n *yaml.Node) error {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || v < 1 {
		return fmt.Errorf("line %d: %q is not a whole number from 1 on; leave it out for no bound", n.Line, n.Value)
	}
	*c = Count(v)
	return nil
}

// JSONSchema says how a Count is written.
func (Count) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: "1"}
}

// Money is an amount of money, in millionths.
type Money int64

const millionths = 1_000_000

// UnmarshalYAML reads a number such as 2.50.
func (m *Money) UnmarshalYAML(n *yaml.Node) error {
	v, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || !(v >= 0) || v > 1e9 {
		return fmt.Errorf("line %d: %q is not an amount such as 2.50", n.Line, n.Value)
	}
	*m = Money(math.Round(v * millionths))
	return nil
}

// MarshalYAML writes the shortest number that reads back.
func (m Money) MarshalYAML() (any, error) { return m.Float(), nil }

// Float is m in its unit.
func (m Money) Float() float64 { return float64(m) / millionths }

// JSONSchema says how Money is written.
func (Money) JSONSchema() *jsonschema.Schema { return eitherWay("5", "0.25") }

// each are the budgets that there are, by the scope.
func (b Budgets) each() map[string]*Budget {
	all := map[string]*Budget{"sandbox": b.Sandbox, "session": b.Session, "hour": b.Hour}
	maps.DeleteFunc(all, func(_ string, b *Budget) bool { return b == nil })
	return all
}

// validateBudgets refuses budgets that bound nothing, or what the route does not tell.
func (c *Config) validateBudgets(key string, r Route) error {
	var errs []error
	all := r.Budget.each()
	for _, scope := range slices.Sorted(maps.Keys(all)) {
		b, key := all[scope], key+".budget."+scope
		switch {
		case *b == Budget{}:
			errs = append(errs, fmt.Errorf("%s: it bounds nothing: give requests, tokens, bytes or cost, each more than 0", key))
		case (b.Tokens > 0 || b.Cost > 0) && !r.CountsTokens():
			errs = append(errs, fmt.Errorf("%s: tokens and cost are counted with the presets openai and anthropic alone", key))
		case b.Cost > 0 && len(c.Prices) == 0:
			errs = append(errs, fmt.Errorf("%s.cost: there are no prices: add them under prices, such as \"gpt-*\": {input: 2.50, output: 10}", key))
		}
	}
	return errors.Join(errs...)
}

// CountsTokens reports whether the answers of r are those of models.
func (r Route) CountsTokens() bool { return r.Preset == "openai" || r.Preset == "anthropic" }
