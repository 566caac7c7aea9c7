package config

import (
	"strings"
	"testing"
)

const meteredRoute = `
secrets: {key: "file:/etc/key"}
%PRICES%
profiles:
  agent:
    routes:
      gpt: {preset: %PRESET%, upstream: "https://api.example.com", credential: key, budget: {session: %BUDGET%}}
`

func TestBudgets(t *testing.T) {
	for _, tt := range []struct{ preset, prices, budget, want string }{
		{"openai", `prices: {"m*": {input: 2.5, output: 10}}`, "{cost: 0.25, tokens: 100, requests: 5, bytes: 1M}", ""},
		{"git", "", "{requests: 5, bytes: 1M}", ""},
		{"openai", "", "{}", "profiles.agent.routes.gpt.budget.session: it bounds nothing"},
		{"openai", "", "{tokens: 0}", `"0" is not a whole number from 1 on`},
		{"openai", "", "{requests: 1.5}", `"1.5" is not a whole number from 1 on`},
		{"openai", "", "{cost: 1}", "budget.session.cost: there are no prices"},
		{"npm", "", "{tokens: 5}", "with the presets openai and anthropic alone"},
		{"openai", `prices: {m: {input: -1}}`, "{cost: 1}", `"-1" is not an amount`},
		{"openai", `prices: {m: {input: NaN}}`, "{cost: 1}", `"NaN" is not an amount`},
		{"openai", "", "{day: 1}", "day"},
	} {
		text := strings.NewReplacer("%PRESET%", tt.preset, "%PRICES%", tt.prices, "%BUDGET%", tt.budget).Replace(meteredRoute)
		c, err := load(t, text)
		if err == nil {
			err = c.Complete()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s %s: %v, want %q", tt.preset, tt.prices, tt.budget, err, tt.want)
		}
	}
}
