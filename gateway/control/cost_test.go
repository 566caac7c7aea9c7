package control

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// TestCost: no report of a gateway costs the daemon more than a request may.
func TestCost(t *testing.T) {
	for name, text := range map[string]string{
		"deep":          strings.Repeat(`{"Attempt":`, MaxReport/11),
		"same field":    "{" + strings.Repeat(`"Answer":{},`, MaxReport/12-4) + `"Answer":{}}`,
		"long text":     `{"Query":{"Sandbox":"a","Name":"` + strings.Repeat(`\u0001`, MaxReport/6-20) + `"}}`,
		"no UTF-8":      `{"Query":{"Sandbox":"a","Name":"` + strings.Repeat("\xff", MaxReport-100) + `"}}`,
		"unknown":       "{" + strings.Repeat(`"u":[{}],`, MaxReport/9-4) + `"u":0}`,
		"long number":   `{"Lost":` + strings.Repeat("9", MaxReport-20) + `}`,
		"folded fields": "{" + strings.Repeat("\"\u212A\":1,", MaxReport/8) + `"a":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			bound.Check(t, len(text), func() { _, _ = DecodeReport([]byte(text)) }) // it may be refused
		})
	}
}
