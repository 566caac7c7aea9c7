package main

import (
	"cmp"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/route/budget"
)

// limitsOf are the budgets of a route as the gateway has them; nil are none.
func limitsOf(b config.Budgets) map[budget.Scope]budget.Limit {
	limits := map[budget.Scope]budget.Limit{}
	for scope, one := range map[budget.Scope]*config.Budget{budget.Sandbox: b.Sandbox, budget.Session: b.Session, budget.Hour: b.Hour} {
		if one != nil {
			limits[scope] = budget.Limit{Requests: uint64(one.Requests), Tokens: uint64(one.Tokens), Bytes: uint64(one.Bytes), Micros: uint64(one.Cost)}
		}
	}
	if len(limits) == 0 {
		return nil
	}
	return limits
}

// pricesFor are the prices of what r leads to; nil are none.
func pricesFor(r config.Route, all map[string]config.Price) budget.Prices {
	if !r.CountsTokens() || len(all) == 0 {
		return nil
	}
	prices := budget.Prices{}
	for model, p := range all {
		prices[model] = budget.Price{Input: p.Input.Float(), Cached: cmp.Or(p.Cached, &p.Input).Float(), Stored: cmp.Or(p.Stored, &p.Input).Float(), Output: p.Output.Float()}
	}
	return prices
}
