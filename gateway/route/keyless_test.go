package route_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// A route that takes no keys refuses requests that show one, before the upstream is asked. The key
// of presets is none. Without that the same requests pass, without their keys.
func TestKeyless(t *testing.T) {
	asked := 0
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(up.Close)
	for _, keyless := range []bool{false, true} {
		f := newFixture(t, up, policy.Route{Upstream: "http://example.com", Credential: "key", Placement: policy.Header, Parameter: "X-Key", Keyless: keyless})
		for _, c := range []struct {
			header, value, query string
			key                  bool
		}{
			{"Accept", "text/plain", "a=b", false},
			{"Authorization", "Bearer " + policy.NoKey, "", false},
			{"X-Api-Key", policy.NoKey, "", false},
			{"Authorization", "Bearer mine", "", true},
			{"Authorization", "Basic bWluZQ==", "", true},
			{"X-Api-Key", "mine", "", true},
			{"x_api_key", "mine", "", true},
			{"X_Key", "mine", "", true},
			{"Cookie", "a=b", "", true},
			{"Accept", "text/plain", "api_key=mine", true},
			{"Accept", "text/plain", "a=b&%6bey=mine", true},
		} {
			asked = 0
			req, err := http.NewRequest(http.MethodGet, "http://"+string(name)+"/?"+c.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header[c.header] = []string{c.value}
			res, text := f.do(t, req)
			want, code := http.StatusOK, sbxerr.Code("")
			if keyless && c.key {
				want, code = http.StatusForbidden, sbxerr.EgressRoute
			}
			if u := f.use(t); res.StatusCode != want || u.Code != code || (asked == 0) != (want != http.StatusOK) || strings.Contains(text, "mine") {
				t.Errorf("keyless %t: %s: %s, ?%s: %s, asked %d times, %+v: %s", keyless, c.header, c.value, c.query, res.Status, asked, u, text)
			}
		}
	}
}
