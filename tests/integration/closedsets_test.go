package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/tests/harness"
)

// askedWith has a request for each field of requests that takes values of a closed set. The
// value is NOPE.
var askedWith = map[string]struct{ method, path, body string }{
	"ListRequest.states":     {"GET", "/v1/sandboxes?states=NOPE", ""},
	"StatsRequest.states":    {"GET", "/v1/stats?states=NOPE", ""},
	"SandboxSpec.network":    {"POST", "/v1/sandboxes", `{"network":"NOPE"}`},
	"PolicyQuery.network":    {"POST", "/v1/policy/check", `{"policy":{"network":"NOPE"},"target":"example.com:443"}`},
	"UpdateRequest.network":  {"PATCH", "/v1/sandboxes/open", `{"network":"NOPE"}`},
	"SandboxSpec.on_idle":    {"POST", "/v1/sandboxes", `{"on_idle":"NOPE"}`},
	"UpdateRequest.on_idle":  {"PATCH", "/v1/sandboxes/open", `{"on_idle":"NOPE"}`},
	"SandboxSpec.rootfs":     {"POST", "/v1/sandboxes", `{"rootfs":"NOPE"}`},
	"Workspace.mode":         {"POST", "/v1/sandboxes", `{"workspace":{"dir":"/srv","mode":"NOPE"}}`},
	"Mount.type":             {"POST", "/v1/sandboxes", `{"mounts":[{"type":"NOPE","target":"/x"}]}`},
	"LogsRequest.stream":     {"GET", "/v1/sandboxes/open/logs?stream=NOPE", ""},
	"ApplyRequest.conflicts": {"POST", "/v1/sandboxes/open/apply", `{"conflicts":"NOPE"}`},
}

// TestUnknownValues: a request with a value that a closed set does not have is refused, and the
// answer names those that it has.
func TestUnknownValues(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "open", "--allow", "example.com:443")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}}
	asked := 0
	for _, set := range settings.Sets {
		for _, field := range slices.Concat(set.Fields, set.OrEmpty) {
			message, _, _ := strings.Cut(field, ".")
			c, ok := askedWith[field]
			if !ok {
				if strings.HasSuffix(message, "Request") || strings.HasSuffix(message, "Spec") || strings.HasSuffix(message, "Query") {
					t.Errorf("no request has a value for %s", field)
				}
				continue
			}
			asked++
			r, err := http.NewRequestWithContext(t.Context(), c.method, "http://caisson"+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			if err := answer.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if err != nil || answer.StatusCode < 400 || !strings.Contains(string(text), `NOPE`) {
				t.Errorf("%s: %d %s, %v", field, answer.StatusCode, text, err)
			}
			for _, value := range set.Values {
				if !strings.Contains(string(text), value) {
					t.Errorf("%s: the answer does not name %q: %s", field, value, text)
				}
			}
		}
	}
	if asked != len(askedWith) {
		t.Errorf("%d of %d fields were asked with", asked, len(askedWith))
	}
	d.Run(t, "rm", "--force", "open")
}
