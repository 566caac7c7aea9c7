package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// post calls a method of the API as curl would.
func post(t *testing.T, d *harness.Daemon, method, body string) (status int, answer string) {
	t.Helper()
	return call(t, d, http.MethodPost, "/caisson.v1."+method, body)
}

func call(t *testing.T, d *harness.Daemon, method, target, body string) (status int, answer string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://caisson"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
