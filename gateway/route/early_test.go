package route_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/gateway/policy"
)

// A client whose body nobody reads gets the answer, and its next request on the same connection, too.
func TestAnswerBeforeTheBody(t *testing.T) {
	early := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	}
	for what, paths := range map[string][]string{"the upstream's": nil, "ours": {"/other"}} {
		for _, size := range []int{10, 10_000, 200_000, 2_000_000} {
			if paths != nil && size > 200_000 {
				continue // the connection ends with the answer
			}
			up := newUpstream(t, early)
			f := newFixture(t, up.Server, policy.Route{Upstream: "http://a.example.com", Paths: paths})
			c := f.client(t)
			const n = 300
			failed := 0
			var last error
			for range n {
				res, err := c.Post("http://"+string(name)+"/x", "application/json", strings.NewReader(strings.Repeat("x", size)))
				if err != nil {
					failed, last = failed+1, err
					continue
				}
				_, _ = io.Copy(io.Discard, res.Body)
				if _ = res.Body.Close(); res.StatusCode/100 != 4 && res.StatusCode != http.StatusBadGateway {
					last = fmt.Errorf("status %s", res.Status)
				}
			}
			if failed > 0 || last != nil {
				t.Errorf("%s answer to %d bytes: %d of %d failed: %v", what, size, failed, n, last)
			}
		}
	}
}
