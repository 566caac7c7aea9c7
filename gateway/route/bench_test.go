package route_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What a route adds is the difference of the two.
func BenchmarkRequest(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
	b.Run("route", func(b *testing.B) {
		f := newFixture(b, up, plainRoute())
		go func() {
			for range f.uses { // nobody looks
			}
		}()
		get(b, f.client(b), "http://"+string(name)+"/v1/chat")
	})
}
