package budget

import (
	"iter"
	"maps"
	"strings"

	"github.com/caisson-run/caisson/gateway/route/tokens"
)

// Micro is how many parts of the unit of prices a cost is counted in.
const Micro = 1_000_000

// Amount is what requests took.
type Amount struct {
	Requests  uint64       `json:"requests"`
	Bytes     uint64       `json:"bytes"` // of bodies, both ways
	Tokens    tokens.Count `json:"tokens,omitzero"`
	Micros    uint64       `json:"micros,omitempty"`    // cost, in millionths of the unit of prices
	Estimated uint64       `json:"estimated,omitempty"` // requests whose tokens are an estimate
}

// Plus is a and b.
func (a Amount) Plus(b Amount) Amount {
	return Amount{a.Requests + b.Requests, a.Bytes + b.Bytes, a.Tokens.Plus(b.Tokens), a.Micros + b.Micros, a.Estimated + b.Estimated}
}

// Minus is how much more a is than b, and nothing where it is less.
func (a Amount) Minus(b Amount) Amount {
	less := func(x, y uint64) uint64 { return x - min(x, y) }
	t, u := a.Tokens, b.Tokens
	return Amount{
		less(a.Requests, b.Requests), less(a.Bytes, b.Bytes),
		tokens.Count{Input: less(t.Input, u.Input), Cached: less(t.Cached, u.Cached), Stored: less(t.Stored, u.Stored), Output: less(t.Output, u.Output), Reasoning: less(t.Reasoning, u.Reasoning)},
		less(a.Micros, b.Micros), less(a.Estimated, b.Estimated),
	}
}

// largest has the larger one of each number that a limit may have.
func (a Amount) largest(b Amount) Amount {
	a.Bytes, a.Micros = max(a.Bytes, b.Bytes), max(a.Micros, b.Micros)
	if b.Tokens.Total() > a.Tokens.Total() {
		a.Tokens = b.Tokens
	}
	return a
}

// times is a for each of n requests.
func (a Amount) times(n uint64) Amount {
	return Amount{Requests: n, Bytes: n * a.Bytes, Tokens: tokens.Count{Input: n * a.Tokens.Input, Output: n * a.Tokens.Output}, Micros: n * a.Micros}
}

// Price is what a million tokens cost.
type Price struct {
	Input  float64 `json:"input"`
	Cached float64 `json:"cached"` // read from the cache
	Stored float64 `json:"stored"` // written to the cache
	Output float64 `json:"output"`
}

// micros is the cost of c. A price for a million is one in millionths for each.
func (p Price) micros(c tokens.Count) uint64 {
	plain := c.Input - min(c.Input, c.Cached+c.Stored)
	return uint64(float64(plain)*p.Input + float64(c.Cached)*p.Cached + float64(c.Stored)*p.Stored + float64(c.Output)*p.Output)
}

// Prices are those of models by name. A name that ends with * is of all that begin so.
type Prices map[string]Price

// Cost is what c costs at model, in millionths. A model without a price costs as much as the
// dearest one.
func (p Prices) Cost(model string, c tokens.Count) (dearest uint64) {
	if name, found := ForModel(maps.Keys(p), model); found {
		return p[name].micros(c)
	}
	for _, price := range p {
		dearest = max(dearest, price.micros(c))
	}
	return dearest
}

// ForModel returns which of names is about a model: its own, or the longest one that ends with *
// and begins so.
func ForModel(names iter.Seq[string], model string) (best string, found bool) {
	for name := range names {
		start, all := strings.CutSuffix(name, "*")
		switch {
		case name == model:
			return name, true
		case all && strings.HasPrefix(model, start) && (!found || len(name) > len(best)):
			best, found = name, true
		}
	}
	return best, found
}
