package page_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/page"
	"github.com/caisson-run/caisson/runtime/peer"
)

const secret = "a-token-of-the-page"

// called is an API that answers everything, and says for whom.
var called = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	who, _ := peer.FromContext(r.Context())
	w.Header().Set("Called-By", who.String())
	w.Header().Set("Called-As", r.Header.Get(api.RequestIDHeader))
	w.Header().Set("Called-With", r.Header.Get("Authorization"))
})

// request is one to a page, which would be served but for what a test changes.
func request(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:7070"
	r.Header.Set("Authorization", "Bearer "+secret)
	return r
}

func answer(t *testing.T, o page.Options, r *http.Request) *http.Response {
	t.Helper()
	o.API, o.Caller, o.Token = called, peer.User(0, 0, nil, 1), secret
	w := httptest.NewRecorder()
	page.New(o).ServeHTTP(w, r)
	return w.Result()
}

// wantRefusal checks the status, the code and the form of a refusal.
func wantRefusal(t *testing.T, res *http.Response, status int, code string) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message, Remedy string }
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Fatalf("status %d, no JSON: %v", res.StatusCode, err)
	}
	if res.StatusCode != status || body.Error.Code != code || body.Error.Message == "" || body.Error.Remedy == "" {
		t.Errorf("status %d, %+v; want %d and %s with a remedy", res.StatusCode, body.Error, status, code)
	}
	if res.Header.Get("Called-By") != "" {
		t.Error("the call was made")
	}
}

// TestCalls: the page's calls are made in the caller's name, and under a request ID that
// tells them from others. All other calls are refused.
func TestCalls(t *testing.T) {
	for _, c := range []struct {
		method, path       string
		allowed, terminals bool // without and with the terminal
	}{
		{"GET", "/v1/sandboxes", true, true},
		{"GET", "/v1/events?follow=true", true, true},
		{"GET", "/v1/stats?no_stream=true", true, true},
		{"GET", "/v1/sandboxes/x/history", true, true},
		{"GET", "/v1/sandboxes/x/logs", true, true},
		{"POST", "/v1/sandboxes/x/pause", true, true},
		{"POST", "/v1/sandboxes/x/stop", true, true},
		{"DELETE", "/v1/sandboxes/x", true, true},
		{"POST", "/v1/policy/check", true, true},
		{"GET", "/v1/volumes", true, true},
		{"POST", "/v1/sandboxes/x/execs", false, true},
		{"POST", "/v1/sandboxes/x/execs/1/input", false, true},
		{"POST", "/v1/sandboxes/x/execs/1/resize", false, true},
		{"POST", "/v1/sandboxes/x/execs/1/signal", false, true},
		{"POST", "/v1/sandboxes", false, false},
		{"POST", "/v1/run", false, false},
		{"PATCH", "/v1/sandboxes/x", false, false},
		{"GET", "/v1/sandboxes/x", false, false}, // the OCI spec holds variables
		{"GET", "/v1/sandboxes/x/files/etc/passwd", false, false},
		{"PUT", "/v1/images/x", false, false},
		{"POST", "/v1/volumes", false, false},
		{"DELETE", "/v1/volumes/x", false, false},
		{"POST", "/v1/cleanup", false, false},
		{"POST", "/v1/sandboxes/x/%73top", false, false},
		{"POST", "/v1/../v1/run", false, false},
		{"GET", "/v1/absent", false, false},
		{"OPTIONS", "/v1/sandboxes", false, false},
	} {
		for _, terminal := range []bool{false, true} {
			res := answer(t, page.Options{Terminal: terminal}, request(c.method, c.path))
			if want := c.allowed || terminal && c.terminals; !want {
				wantRefusal(t, res, http.StatusForbidden, "SBX-809")
				continue
			}
			if by, as := res.Header.Get("Called-By"), res.Header.Get("Called-As"); by != "uid 0" || !strings.HasPrefix(as, "page-") || len(as) < 20 {
				t.Errorf("%s %s: called by %q as %q", c.method, c.path, by, as)
			}
			if res.Header.Get("Called-With") != "" {
				t.Errorf("%s %s: the token was passed on", c.method, c.path)
			}
			if got := res.Header.Get("Caisson-Terminal") == "true"; got != terminal {
				t.Errorf("the page was told terminal %t, want %t", got, terminal)
			}
		}
	}
}

// TestToken: no call is made without exactly the token.
func TestToken(t *testing.T) {
	if res := answer(t, page.Options{}, request("GET", "/v1/sandboxes")); res.StatusCode != http.StatusOK {
		t.Fatalf("with the token: status %d", res.StatusCode)
	}
	for _, header := range []string{"", "Bearer ", "Bearer " + secret[1:], "Bearer " + secret + "x", "bearer " + secret, secret, "Basic " + secret} {
		refused := 0
		r := request("GET", "/v1/sandboxes")
		r.Header.Set("Authorization", header)
		r.Header.Set("Cookie", "token="+secret)
		res := answer(t, page.Options{Refused: func() { refused++ }}, r)
		wantRefusal(t, res, http.StatusUnauthorized, "SBX-808")
		if refused != 1 || !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%q: told %d times, WWW-Authenticate %q", header, refused, res.Header.Get("WWW-Authenticate"))
		}
	}
	r := request("GET", "/v1/sandboxes?token="+secret)
	r.Header.Del("Authorization")
	wantRefusal(t, answer(t, page.Options{}, r), http.StatusUnauthorized, "SBX-808")
}

// TestHost: under a name that an attacker may lead to the loopback interface (DNS
// rebinding) nothing is served, not even the page's files.
func TestHost(t *testing.T) {
	for _, path := range []string{"/", "/v1/sandboxes"} {
		for _, host := range []string{"127.0.0.1:7070", "localhost:7070", "localhost:9999", "[::1]:7070", "127.0.0.1", "[::1]"} {
			r := request("GET", path)
			r.Host = host
			if res := answer(t, page.Options{}, r); res.StatusCode != http.StatusOK {
				t.Errorf("%s at %s: status %d", path, host, res.StatusCode)
			}
		}
		for _, host := range []string{"", "attacker.example:7070", "localhost.attacker.example", "127.0.0.1.attacker.example:7070", "10.0.0.1:7070", "0.0.0.0:7070", "127.0.0.1:7070:1"} {
			r := request("GET", path)
			r.Host = host
			wantRefusal(t, answer(t, page.Options{}, r), http.StatusMisdirectedRequest, "SBX-809")
		}
	}
}

// TestOrigin: what a page of another site sends is refused, also a GET, and also with the
// token. No answer lets another site read it.
func TestOrigin(t *testing.T) {
	for _, c := range []struct {
		header, value string
		allowed       bool
	}{
		{"Origin", "http://127.0.0.1:7070", true},
		{"Sec-Fetch-Site", "same-origin", true},
		{"Origin", "http://attacker.example", false},
		{"Origin", "http://127.0.0.1:8080", false},
		{"Origin", "null", false},
		{"Sec-Fetch-Site", "cross-site", false},
		{"Sec-Fetch-Site", "same-site", false},
	} {
		for method, path := range map[string]string{"GET": "/v1/sandboxes", "POST": "/v1/sandboxes/x/stop", "DELETE": "/v1/sandboxes/x"} {
			r := request(method, path)
			r.Header.Set(c.header, c.value)
			res := answer(t, page.Options{}, r)
			if !c.allowed {
				wantRefusal(t, res, http.StatusForbidden, "SBX-809")
			} else if res.StatusCode != http.StatusOK {
				t.Errorf("%s %s with %s %s: status %d", method, path, c.header, c.value, res.StatusCode)
			}
			for name := range res.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("the answer has %s", name)
				}
			}
		}
	}
}

// TestHeaders: each answer forbids frames, guesses of its kind, referrers and inline code.
func TestHeaders(t *testing.T) {
	stranger := request("GET", "/v1/sandboxes")
	stranger.Header.Del("Authorization")
	for _, r := range []*http.Request{request("GET", "/"), request("GET", "/app.js"), request("GET", "/absent"), request("POST", "/"), request("GET", "/v1/sandboxes"), stranger} {
		res := answer(t, page.Options{}, r)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", r.Method, r.URL, name, got, want)
			}
		}
		policy := res.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "data:") {
			t.Errorf("%s %s: Content-Security-Policy %q", r.Method, r.URL, policy)
		}
		if len(res.Cookies()) > 0 {
			t.Errorf("%s %s sets a cookie", r.Method, r.URL)
		}
	}
}

// TestFiles: the files need no token, as they hold nothing, and are only those of the page.
func TestFiles(t *testing.T) {
	for path, kind := range map[string]string{"/": "text/html", "/app.js": "text/javascript", "/style.css": "text/css", "/vendor/uplot.js": "text/javascript", "/icon.svg": "image/svg+xml"} {
		r := request("GET", path)
		r.Header.Del("Authorization")
		res := answer(t, page.Options{}, r)
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), kind) || len(body) == 0 || err != nil {
			t.Errorf("%s: status %d, %s, %d bytes, %v", path, res.StatusCode, res.Header.Get("Content-Type"), len(body), err)
		}
	}
	wantRefusal(t, answer(t, page.Options{}, request("POST", "/app.js")), http.StatusNotFound, "SBX-809")
	for _, path := range []string{"/page.go", "/../page.go", "/vendor/", "/%2e%2e/page.go"} {
		if res := answer(t, page.Options{}, request("GET", path)); res.StatusCode == http.StatusOK {
			t.Errorf("%s is served", path)
		}
	}
}
