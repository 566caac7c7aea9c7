package route_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
)

// What a route adds is the difference of the two.
func BenchmarkRequest(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"fine"}}],"usage":{"prompt_tokens":1}}`)
	}))
	b.Cleanup(up.Close)
	get := func(b *testing.B, c *http.Client, url string) {
		for b.Loop() {
			res, err := c.Get(url)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
				b.Fatal(res.Status, err)
			}
			_ = res.Body.Close()
		}
	}
	b.Run("direct", func(b *testing.B) { get(b, up.Client(), up.URL) })
	limits := map[budget.Scope]budget.Limit{budget.Sandbox: {Tokens: 1 << 50}, budget.Hour: {Micros: 1 << 50}}
	for what, r := range map[string]policy.Route{"route": plainRoute(), "budget": modelRoute(limits)} {
		b.Run(what, func(b *testing.B) {
			f := newFixture(b, up, r)
			go func() {
				for range f.uses { // nobody looks
				}
			}()
			get(b, f.client(b), "http://"+string(name)+"/v1/chat")
		})
	}
}
