package route_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

func TestPlacements(t *testing.T) {
	for _, tt := range []struct {
		placement policy.Placement
		parameter string
		arrived   func(*http.Request) string
		want      string
	}{
		{"", "", func(r *http.Request) string { return r.Header.Get("Authorization") }, "Bearer " + key},
		{policy.Basic, "user", func(r *http.Request) string { return r.Header.Get("Authorization") }, "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+key))},
		{policy.Header, "x-special-key", func(r *http.Request) string { return r.Header.Get("X-Special-Key") }, key},
		{policy.Query, "k", func(r *http.Request) string { return r.URL.RawQuery }, "a=1&k=" + key},
	} {
		up := newUpstream(t, ok)
		r := plainRoute()
		r.Placement, r.Parameter = tt.placement, tt.parameter
		f := newFixture(t, up.Server, r)
		res, text := f.get(t, "/v1/models?a=1")
		if res.StatusCode != 200 || text != "fine" {
			t.Errorf("%q: %d %q", tt.placement, res.StatusCode, text)
		}
		got := up.last(t)
		if tt.arrived(got) != tt.want || got.URL.Path != "/base/v1/models" || got.Host != "up.example.com" {
			t.Errorf("%q: %q at %s of %s", tt.placement, tt.arrived(got), got.URL, got.Host)
		}
		u := f.use(t)
		if u.Sandbox != "box" || u.Name != name || u.Credential != "key" || u.Method != "GET" || u.Path != "/v1/models" || u.Status != 200 || u.Received != 4 || u.Code != "" || u.Duration <= 0 {
			t.Errorf("recorded as %+v", u)
		}
	}
}

// No credential of the client's own gets out, whatever it is called.
func TestClientsOwnCredentials(t *testing.T) {
	up := newUpstream(t, ok)
	f := newFixture(t, up.Server, plainRoute())
	req, err := http.NewRequest(http.MethodGet, "http://"+string(name)+"/x?b=%2f&api_key=mine&Token=mine&a;b=1&%61pi_key=mine&c=d+e", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie", "X-Auth-Token", "Private-Token", "X_Api_Key", "Job-Token"} {
		req.Header[h] = []string{"mine"}
	}
	req.Header.Set("Connection", "Authorization, X-Kept-Not")
	req.Header.Set("X-Kept-Not", "of the connection")
	req.Header.Set("X-Kept", "yes")
	req.Header.Set("X-Forwarded-For", "192.0.2.1")
	f.do(t, req)
	got := up.last(t)
	for h, values := range got.Header {
		if strings.Contains(strings.Join(values, " "), "mine") {
			t.Errorf("%s: %q got out", h, values)
		}
	}
	if got.Header.Get("Authorization") != "Bearer "+key || got.Header.Get("X-Kept") != "yes" || got.Header.Get("X-Kept-Not") != "" || got.Header.Get("X-Forwarded-For") != "" {
		t.Errorf("%v", got.Header)
	}
	// net/http drops a;b=1 and sorts the rest unless the raw query is kept.
	if got.URL.RawQuery != "b=%2f&a;b=1&c=d+e" {
		t.Errorf("the query %q", got.URL.RawQuery)
	}
}

func TestScope(t *testing.T) {
	up := newUpstream(t, ok)
	r := plainRoute()
	r.Methods, r.Paths = []string{"GET", "POST"}, []string{"/v1/models", "/v1/files/*/content", "/v2/**"}
	f := newFixture(t, up.Server, r)
	for line, want := range map[string]int{
		"GET /v1/models": 200, "POST /v2/a/b": 200, "GET /v2/": 200, "GET /v1/files/7/content": 200, "GET /v2": 200, "GET /v2/@a%2fb": 200, "GET /v2/@a%2Fb": 200,
		"GET /v2/@a%2f..": 403, "GET /v2/@a%2fb%2fc": 403, "GET /v2/a%2fb": 403, "GET /v2/@a%2f%2e%2e": 403, "GET /v1/@a%2fmodels": 403,
		"GET /v1/models/": 403, "GET /v1/files//content": 403, "GET /v1/files/content": 403, "GET /": 403, "DELETE /v2/a": 403, "GET /v1/Models": 403,
		"GET /v2/../v1/files": 403, "GET /v2/%2e%2e/secret": 403, "GET /v2/..%2f..%2fsecret": 403, "GET /v2//a": 403, "GET /v2/a%00": 403, "GET /v2/a;b": 403, "GET /v2/a%5cb": 403,
		"TRACE /v2/a": 403, "OPTIONS *": 403, "CONNECT up.caisson.internal:80": 403, "get /v2/a": 403,
	} {
		before := up.count()
		got := f.raw(t, line+" HTTP/1.1\r\nHost: up.caisson.internal\r\nConnection: close\r\n\r\n")
		if want == 200 && (!strings.HasPrefix(got, "200 ") || up.count() != before+1) || want != 200 && (!strings.HasPrefix(got, "403 "+string(sbxerr.EgressRoute)) || up.count() != before) {
			t.Errorf("%s: %q after %d requests", line, got, up.count()-before)
		}
	}
}

// The connection says which route it is: no header changes that.
func TestOtherHost(t *testing.T) {
	up := newUpstream(t, ok)
	f := newFixture(t, up.Server, plainRoute())
	for head, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: up.caisson.internal":                           "200 ",
		"GET / HTTP/1.1\r\nHost: UP.caisson.internal.:80":                       "200 ",
		"GET http://up.caisson.internal/ HTTP/1.1\r\nHost: up.caisson.internal": "200 ",
		"GET http://other.example/ HTTP/1.1\r\nHost: up.caisson.internal":       "403 " + string(sbxerr.EgressMismatch),
		"GET / HTTP/1.1\r\nHost: other.caisson.internal":                        "403 " + string(sbxerr.EgressMismatch),
		"GET / HTTP/1.1\r\nHost: up.caisson.internal:8080":                      "403 " + string(sbxerr.EgressMismatch),
		"GET / HTTP/1.1\r\nHost: up.caisson.internal\r\nHost: other.example":    "400 ",
		"GET / HTTP/1.1": "400 ",
		"GET / HTTP/1.1\r\nHost: up.caisson.internal\r\nX-A : b":                "400 ",
		"GET / HTTP/1.1\r\nHost: up.caisson.internal\r\nTransfer-Encoding: odd": "501 ",
		"PRI * HTTP/2.0": "400 ",
		"GET / HTTP/1.1\r\nHost: up.caisson.internal\r\nX: " + strings.Repeat("x", 64<<10): "431 ",
	} {
		before := up.count()
		got := f.raw(t, head+"\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, want) || (want == "200 ") != (up.count() > before) {
			t.Errorf("%.80q: %q", head, got)
		}
	}
}

// What an upstream gives away of the credential is masked, in all parts of an answer.
func TestEcho(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization")
		h := w.Header()
		h.Set("X-Echo", said)
		h.Set("X-"+key, "in a name")
		h.Set("Trailer", "X-Late")
		h.Set("Set-Cookie", "session="+key)
		h.Set("Link", "</early>; k="+key)
		w.WriteHeader(http.StatusEarlyHints)
		h.Del("Link")
		w.WriteHeader(200)
		for _, c := range said + " " + base64.StdEncoding.EncodeToString([]byte("user:"+key)) {
			_, _ = io.WriteString(w, string(c))
			w.(http.Flusher).Flush()
		}
		h.Set("X-Late", said)
	})
	f := newFixture(t, up.Server, plainRoute())
	answer := dump(t, f, "GET / HTTP/1.1\r\nHost: up.caisson.internal\r\nConnection: close\r\n\r\n")
	for _, want := range []string{"103 Early Hints", "Link: </early>; k=" + stars, "X-Echo: Bearer " + stars, "X-Late: Bearer " + stars} {
		if !strings.Contains(answer, want) {
			t.Errorf("no %q", want)
		}
	}
	plain := strings.NewReplacer("\r\n1\r\n", "", "\r\n", "").Replace(answer) // without the frames of chunks
	for _, form := range []string{key, "in a name", "Set-Cookie", base64.StdEncoding.EncodeToString([]byte(key))[:20]} {
		if strings.Contains(answer, form) || strings.Contains(plain, form) {
			t.Errorf("%q got in: %q", form, answer)
		}
	}
	if t.Failed() {
		t.Log(answer)
	}
}

func TestEncodings(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, "the key is "+key)
	_ = z.Close()
	encoding := ""
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", encoding)
		_, _ = w.Write(packed.Bytes())
	})
	f := newFixture(t, up.Server, plainRoute())
	encoding = "gzip"
	req, _ := http.NewRequest(http.MethodGet, "http://"+string(name)+"/", nil)
	req.Header.Set("Accept-Encoding", "br, zstd")
	req.Header.Set("Range", "bytes=0-1")
	res, text := f.do(t, req)
	if res.StatusCode != 200 || text != "the key is "+stars || res.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d %q %v", res.StatusCode, text, res.Header)
	}
	if got := up.last(t).Header; got.Get("Accept-Encoding") != "gzip" || got.Get("Range") != "" {
		t.Errorf("asked with %v", got)
	}
	for _, encoding = range []string{"br", "gzip, br", "zstd", "deflate", key} {
		res, text := f.get(t, "/")
		if res.StatusCode != 502 || !strings.HasPrefix(text, string(sbxerr.EgressRoute)) || strings.Contains(text, key) {
			t.Errorf("%s: %d %q", encoding, res.StatusCode, text)
		}
	}
}

func TestRedirects(t *testing.T) {
	to := ""
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	})
	f := newFixture(t, up.Server, plainRoute())
	for location, want := range map[string]string{
		"/base/next?a=1#f": "http://up.caisson.internal/next?a=1#f", "http://UP.example.com/base/next": "http://up.caisson.internal/next", "next": "http://up.caisson.internal/next",
		"/base": "http://up.caisson.internal/", "/other": "/other", "/basement": "/basement", "https://up.example.com/base/x": "https://up.example.com/base/x",
		"http://up.example.com:8080/base/x": "http://up.example.com:8080/base/x", "https://evil.example/?k=" + key: "https://evil.example/?k=" + stars,
		"/base/a%20b": "http://up.caisson.internal/a%20b",
	} {
		to = location
		res, _ := f.get(t, "/")
		if got := res.Header.Get("Location"); res.StatusCode != 302 || got != want {
			t.Errorf("%s: %d %q, want %q", location, res.StatusCode, got, want)
		}
		if up.count() != 1 {
			t.Errorf("%s: the gateway followed", location)
		}
		up.mu.Lock()
		up.seen = nil
		up.mu.Unlock()
	}
}

// An upstream's certificate is verified, by the roots of the route alone if it has some.
func TestTLS(t *testing.T) {
	up := &upstream{}
	up.Server = httptest.NewTLSServer(up.keep(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	defer up.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw}))
	r := plainRoute()
	r.Upstream = "https://example.com" // which is in the certificate
	for _, tt := range []struct {
		what, upstream, ca string
		status             int
		text               string
	}{
		{"its root", "https://example.com", ca, 200, "HTTP/1.1"},
		{"no root", "https://example.com", "", 502, "certificate signed by unknown authority"},
		{"another name", "https://other.example", ca, 502, "certificate is valid for"},
	} {
		r.Upstream, r.CA = tt.upstream, tt.ca
		f := newFixture(t, up.Server, r)
		before := up.count()
		res, text := f.get(t, "/")
		text += f.use(t).Reason
		if res.StatusCode != tt.status || !strings.Contains(text, tt.text) || (tt.status == 200) != (up.count() > before) {
			t.Errorf("%s: %d %q", tt.what, res.StatusCode, text)
		}
	}
}

// A new value is used by the next request, while one that runs goes on with the old one.
func TestRotation(t *testing.T) {
	entered, leave := make(chan string, 4), make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- r.Header.Get("Authorization")
		<-leave
		_, _ = io.WriteString(w, "used "+r.Header.Get("Authorization"))
	})
	f := newFixture(t, up.Server, plainRoute())
	answers := make(chan string, 2)
	ask := func() {
		res, err := f.client(t).Get("http://" + string(name) + "/")
		if err != nil {
			answers <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		answers <- string(b)
	}
	go ask()
	if got := <-entered; got != "Bearer "+key {
		t.Fatalf("%q", got)
	}
	if err := f.secrets.Set(map[string]io.Reader{"key": strings.NewReader("another-key-0123")}); err != nil {
		t.Fatal(err)
	}
	go ask()
	if got := <-entered; got != "Bearer another-key-0123" {
		t.Errorf("%q", got)
	}
	close(leave)
	for range 2 {
		if got := <-answers; !strings.HasPrefix(got, "used Bearer ****") {
			t.Errorf("%q", got)
		}
	}
	if err := f.secrets.Set(nil); err != nil {
		t.Fatal(err)
	}
	res, text := f.get(t, "/")
	if res.StatusCode != 502 || !strings.HasPrefix(text, string(sbxerr.Secret)) || !strings.Contains(text, `"key"`) {
		t.Errorf("without a value: %d %q", res.StatusCode, text)
	}
}

// A route that is taken away is refused on connections that are open.
func TestRouteTakenAway(t *testing.T) {
	up := newUpstream(t, ok)
	f := newFixture(t, up.Server, plainRoute())
	c := f.client(t)
	for _, want := range []int{200, 403} {
		res, err := c.Get("http://" + string(name) + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d, want %d", res.StatusCode, want)
		}
		f.mu.Lock()
		f.routed = nil
		f.mu.Unlock()
	}
}

// An event gets to the client while the answer goes on, and the end of the client ends the
// request to the upstream.
func TestStreams(t *testing.T) {
	ended := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: sk-liv\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	})
	f := newFixture(t, up.Server, plainRoute())
	res, err := f.client(t).Get("http://" + string(name) + "/")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("data: sk-liv\n\n"))
	if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != "data: sk-liv\n\n" {
		t.Errorf("%q, %v", b, err)
	}
	_ = res.Body.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the upstream still answers")
	}
	if u := f.use(t); u.Status != 200 || u.Received != int64(len(b)) || u.Code != sbxerr.Canceled {
		t.Errorf("%+v", u)
	}
}

// At an alias, paths begin with what stands before the route's there, and redirects too.
func TestAlias(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/base/next")
		_, _ = io.WriteString(w, r.Host+r.URL.EscapedPath()+" "+r.Header.Get("Authorization"))
	})
	f := newFixture(t, up.Server, policy.Route{Upstream: "http://a.example.com/base", Credential: "key"})
	f.at = &policy.Place{Route: name, Host: "host.docker.internal", Port: 8430, Below: "/proxy/v1"}
	for _, tt := range []struct {
		url    string
		status int
		text   string
	}{
		{"http://host.docker.internal:8430/proxy/v1/chat%20x", 200, "a.example.com/base/chat%20x Bearer " + stars},
		{"http://host.docker.internal:8430/proxy/v1", 200, "a.example.com/base/ Bearer " + stars},
		{"http://host.docker.internal:8430/proxy/v11/chat", 403, "SBX-711\nthe route is below /proxy/v1"},
		{"http://host.docker.internal:8430/proxy/v1/../x", 403, "SBX-711"},
		{"http://host.docker.internal:8430/", 403, "SBX-711"},
		{"http://host.docker.internal/proxy/v1/chat", 403, "SBX-703"},
		{"http://" + string(name) + "/chat", 403, "SBX-703"},
	} {
		req, err := http.NewRequest(http.MethodGet, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, text := f.do(t, req)
		if res.StatusCode != tt.status || !strings.HasPrefix(text, tt.text) {
			t.Errorf("%s: %s, %q", tt.url, res.Status, text)
		}
		if at := res.Header.Get("Location"); tt.status == 200 && at != "http://host.docker.internal:8430/proxy/v1/next" {
			t.Errorf("%s: a redirect to %q", tt.url, at)
		}
	}
}
