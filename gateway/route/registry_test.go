package route_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/gateway/policy"
)

// tokened is a registry that wants a token, which it gives itself at /token, or sends for
// elsewhere.
type tokened struct {
	realm   string
	grants  atomic.Int64
	expires int
}

const granted = "granted-token-0123456789"

func (g *tokened) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, basic := r.BasicAuth()
	switch {
	case r.URL.Path == "/token":
		if !basic || user != "me" || password != key || r.URL.Query().Get("service") != "registry" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		g.grants.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"token": granted, "expires_in": g.expires, "scope": r.URL.Query().Get("scope")})
	case r.Header.Get("Authorization") == "Bearer "+granted:
		fmt.Fprintf(w, "%s %s by %s", r.Method, r.URL, r.Header.Get("Authorization"))
	default:
		w.Header().Set("Www-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="registry",scope="repository:acme/tools:pull"`, g.realm))
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func registryRoute(auth string) policy.Route {
	return policy.Route{Upstream: "http://up.example.com", Credential: "key", Placement: policy.Basic, Parameter: "me", Registry: true, Auth: auth}
}

// A token that the registry wants is fetched with the credential, used again, and masked.
func TestRegistryToken(t *testing.T) {
	for realm, auth := range map[string]string{"http://up.example.com/token": "", "http://auth.example.com/token": "http://auth.example.com"} {
		g := &tokened{realm: realm, expires: 300}
		up := httptest.NewServer(g)
		t.Cleanup(up.Close)
		f := newFixture(t, up, registryRoute(auth))
		turns := make(chan int, 10)
		f.dial = func(ctx context.Context, turn int) (net.Conn, error) {
			turns <- turn
			return new(net.Dialer).DialContext(ctx, "tcp", up.Listener.Addr().String())
		}
		for range 3 {
			res, body := f.get(t, "/v2/acme/tools/manifests/latest?mount=sha256:1&from=other&n=1")
			if res.StatusCode != http.StatusOK || body != "GET /v2/acme/tools/manifests/latest?n=1 by Bearer "+strings.Repeat("*", len(granted)) {
				t.Errorf("%s: %s %q", realm, res.Status, body)
			}
		}
		if n := g.grants.Load(); n != 1 {
			t.Errorf("%s: %d tokens", realm, n)
		}
		f.get(t, "/v2/acme/other/blobs/sha256:1")
		if n := g.grants.Load(); n != 2 {
			t.Errorf("%s: another repository: %d tokens", realm, n)
		}
		close(turns)
		last := 0
		for turn := range turns {
			last = max(last, turn)
		}
		if (last == 1) != (auth != "") {
			t.Errorf("%s: turn %d", realm, last)
		}
	}
}

// A registry that takes the credential itself is asked for no token.
func TestRegistryBasic(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != key {
			w.Header().Set("Www-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	f := newFixture(t, u.Server, registryRoute(""))
	if res, body := f.get(t, "/v2/"); res.StatusCode != http.StatusOK || u.count() != 1 {
		t.Errorf("%s %q, asked %d times", res.Status, body, u.count())
	}
}

// The credential goes to no server that the route does not name, and a refusal says why.
func TestRegistryRefused(t *testing.T) {
	for realm, says := range map[string]string{
		"http://evil.example.com/token":   `sends for tokens to "http://evil.example.com/token", which is not a server of the route`,
		"https://up.example.com/token":    "not a server of the route",
		"http://x@up.example.com/token":   "not a server of the route",
		"http://up.example.com.evil/":     "not a server of the route",
		"":                                `does not take the credential "key"`,
		"http://up.example.com/absent":    "answers with status 401",
		"http://up.example.com:81/token":  "not a server of the route",
		"http://up.example.com/token?x=y": "",
	} {
		g := &tokened{realm: realm}
		up := httptest.NewServer(g)
		t.Cleanup(up.Close)
		f := newFixture(t, up, registryRoute(""))
		res, body := f.get(t, "/v2/acme/tools/manifests/latest")
		if says == "" {
			if res.StatusCode != http.StatusOK {
				t.Errorf("the control: %s %q", res.Status, body)
			}
			continue
		}
		if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, says) || strings.Contains(body, key) || g.grants.Load() > 0 {
			t.Errorf("%s: %s %q, %d tokens", realm, res.Status, body, g.grants.Load())
		}
	}
	for _, answer := range []string{"", "{", `{"token": ""}`, `{"token": "a b c d e f g h"}`, `{"token": "` + strings.Repeat("x", 20000) + `"}`} {
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				fmt.Fprint(w, answer)
				return
			}
			w.Header().Set("Www-Authenticate", `Bearer realm="http://up.example.com/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
		f := newFixture(t, u.Server, registryRoute(""))
		if res, body := f.get(t, "/v2/"); res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "the server of tokens answers with") {
			t.Errorf("%.40q: %s %q", answer, res.Status, body)
		}
	}
}
