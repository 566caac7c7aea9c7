package tokens_test

import (
	"io"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/gateway/route/tokens"
	"github.com/caisson-run/caisson/tests/cost/bound"
)

// What an upstream answers costs no more than it is long, whatever it is.
func TestCost(t *testing.T) {
	const size = 1 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, text := range map[string]string{
		"objects":     fill(`{"usage":`),
		"arrays":      fill("["),
		"escapes":     `{"usage":"` + fill(`\"`),
		"usages":      fill(`{"usage":{"prompt_tokens":1}} `),
		"long values": fill(`{"usage":{"x":"` + strings.Repeat("y", 15<<10) + `"}}`),
		"lines":       fill("data:\n"),
		"events":      fill("data: {\"choices\":[],\"usage\":{}}\n\n"),
		"one event":   "data: " + fill(`{"choices":[],"usage":{}}`),
	} {
		for _, kind := range []string{document, stream} {
			t.Run(name+" as "+kind, func(t *testing.T) {
				bound.Check(t, size, func() {
					_, _ = io.Copy(io.Discard, tokens.Unasked(tokens.NewMeter(strings.NewReader(text), kind)))
					_, _ = tokens.Ask([]byte(text))
				})
			})
		}
	}
}
