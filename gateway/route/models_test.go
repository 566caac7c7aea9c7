package route_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// modelFixture is a route with an upstream of its own, one for b-* with another credential, and
// one for c without any.
func modelFixture(t *testing.T) *fixture {
	t.Helper()
	up := map[string]*upstream{"a": newUpstream(t, says("a")), "b": newUpstream(t, says("b")), "c": newUpstream(t, says("c"))}
	r := policy.Route{
		Upstream: "http://a.example.com/v1", Credential: "key", Tokens: true, Paths: []string{"/chat/**"},
		Models: map[string]policy.Model{
			"b-*": {Upstream: "http://b.example.com/base", Credential: "other", Placement: policy.Header, Parameter: "X-Api-Key"},
			"c":   {Upstream: "http://c.example.com:81"},
		},
	}
	f := newFixture(t, up["a"].Server, r)
	if err := f.secrets.Set(map[string]io.Reader{"key": strings.NewReader(key), "other": strings.NewReader("other-0123456789")}); err != nil {
		t.Fatal(err)
	}
	f.dial = func(ctx context.Context, turn int) (net.Conn, error) {
		to := f.routed.Turn(turn)
		if to == nil {
			return nil, sbxerr.New(sbxerr.Internal, "test", "turn %d", turn)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", up[string(to.Name)[:1]].Listener.Addr().String())
	}
	return f
}

// A request goes to the upstream of the model that it names, with the credential of that.
func TestModels(t *testing.T) {
	f := modelFixture(t)
	long := fmt.Sprintf(`{"messages": [%q, {"model": "b-1"}], "model": "c"}`, strings.Repeat("x", 1<<20))
	for body, want := range map[string]struct{ answer, credential string }{
		`{"model": "gpt-4o"}`:               {"a POST a.example.com/v1/chat/x", "key"},
		` {"stream": true, "model":"b-1"}`:  {"b POST b.example.com/base/chat/x", "other"},
		`{"model": "b-"}`:                   {"b POST b.example.com/base/chat/x", "other"},
		`{"model": "c"}`:                    {"c POST c.example.com:81/chat/x", ""},
		`{"model": "c2"}`:                   {"a POST a.example.com/v1/chat/x", "key"},
		`{"other": {"model": "c"}}`:         {"a POST a.example.com/v1/chat/x", "key"},
		`["model", "c"]`:                    {"a POST a.example.com/v1/chat/x", "key"},
		`{"model": 5}`:                      {"a POST a.example.com/v1/chat/x", "key"},
		`--form "model": "c"`:               {"a POST a.example.com/v1/chat/x", "key"},
		``:                                  {"a POST a.example.com/v1/chat/x", "key"},
		"\xff" + strings.Repeat("y", 5<<20): {"a POST a.example.com/v1/chat/x", "key"},
		long:                                {"c POST c.example.com:81/chat/x", ""},
		`{"model": "c"}` + strings.Repeat(" ", 6<<20): {"c POST c.example.com:81/chat/x", ""},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+string(name)+"/chat/x", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, got := f.do(t, req)
		if short := body[:min(len(body), 40)]; res.StatusCode != http.StatusOK || !strings.HasPrefix(got, want.answer+" "+body) {
			t.Errorf("%s: %s, %.100q", short, res.Status, got)
		}
		authorized := strings.Contains(got, "Bearer "+stars)
		u := f.use(t)
		if u.Credential != want.credential || authorized != (want.credential == "key") || u.Sent != int64(len(body)) || u.Name != name {
			t.Errorf("%.40s: %+v, by %q", body, u, u.Credential)
		}
	}
}

// What the route allows holds for each upstream, and a model that cannot be seen is refused.
func TestModelsRefused(t *testing.T) {
	f := modelFixture(t)
	for _, c := range []struct{ path, encoding, body, want string }{
		{"/files", "", `{"model": "c"}`, "the path"},
		{"/chat/x", "gzip", `{"model": "c"}`, "the body is packed"},
		{"/chat/x", "", `{"messages": "` + strings.Repeat("x", 5<<20) + `", "model": "c"}`, "does not name its model in the first 4 MiB"},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+string(name)+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.encoding != "" {
			req.Header.Set("Content-Encoding", c.encoding)
		}
		if res, got := f.do(t, req); res.StatusCode != http.StatusForbidden || !strings.Contains(got, c.want) || !strings.HasPrefix(got, "SBX-711") {
			t.Errorf("%s: %s, %.200q", c.want, res.Status, got)
		}
	}
}

// An answer of the model's upstream is masked by its own credential.
func TestModelsMasked(t *testing.T) {
	f := modelFixture(t)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("X-Api-Key")) })
	f.dial = func(ctx context.Context, _ int) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", up.Listener.Addr().String())
	}
	req, _ := http.NewRequest(http.MethodPost, "http://"+string(name)+"/chat/x", strings.NewReader(`{"model": "b-1"}`))
	if _, got := f.do(t, req); got != strings.Repeat("*", len("other-0123456789")) {
		t.Errorf("%q", got)
	}
}
