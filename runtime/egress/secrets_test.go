package egress

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// source is a secret in a file, which is opened anew for each process.
func source(t *testing.T, value string) Source {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() (*os.File, error) { return os.Open(path) }
}

// Secrets reach the process that runs and those after it; a bad one leaves the one before.
func TestSecrets(t *testing.T) {
	arrived := make(chan string, 64)
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.Header.Get("Authorization") }))
	defer up.Close()
	w := newWorld(t, fast)
	if err := w.SetSecrets(t.Context(), map[string]Source{"key": source(t, "the-first-value\n")}, nil); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(up.Listener.Addr().String(), ":") // of the address of web.example
	spec := policy.Spec{Mode: policy.Allow, Routes: map[string]policy.Route{"up": {Upstream: "http://web.example:" + port, Credential: "key", Private: true}}}
	b := w.add(t, Sandbox{ID: "one", Policy: spec})
	addr, _ := b.lookup(t, "up.caisson.internal")
	ask := func() string {
		c, err := b.dial(addr, 80)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: up.caisson.internal\r\nConnection: close\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err.Error()
		}
		if res.StatusCode == http.StatusOK {
			return <-arrived
		}
		return res.Header.Get("X-Caisson-Code")
	}
	if got := ask(); got != "Bearer the-first-value" {
		t.Fatalf("%q", got)
	}
	until(t, "the record", func() bool { w.seen.mu.Lock(); defer w.seen.mu.Unlock(); return len(w.seen.uses) == 1 })
	if u := w.seen.uses[0]; u.Sandbox != "one" || u.Credential != "key" || u.Path != "/x" || u.Status != 200 {
		t.Errorf("%+v", u)
	}
	if use := w.SecretUses()["key"]; use.Read.IsZero() || use.Used.Before(use.Read) || len(w.SecretUses()) != 1 {
		t.Errorf("%+v", w.SecretUses())
	}
	bad := map[string]Source{"key": source(t, "the-second-value"), "other": source(t, "two\nlines of it")}
	if err := w.SetSecrets(t.Context(), bad, nil); sbxerr.Of(err) != sbxerr.Secret || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a bad value: %v", err)
	}
	if got := ask(); got != "Bearer the-first-value" {
		t.Errorf("after a bad value: %q", got)
	}
	if err := w.TrySecret(t.Context(), "other", bad["other"]); sbxerr.Of(err) != sbxerr.Secret || strings.Contains(err.Error(), "lines of it") {
		t.Errorf("a bad value, tried: %v", err)
	}
	if err := w.TrySecret(t.Context(), "key", bad["key"]); err != nil {
		t.Errorf("a good value, tried: %v", err)
	}
	if got := ask(); got != "Bearer the-first-value" {
		t.Errorf("after both were tried: %q", got)
	}
	if err := w.SetSecrets(t.Context(), map[string]Source{"key": source(t, "the-second-value")}, nil); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != "Bearer the-second-value" {
		t.Errorf("replaced: %q", got)
	}
	old := w.pid()
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process", func() bool { pid := w.pid(); return pid != 0 && pid != old })
	if got := ask(); got != "Bearer the-second-value" {
		t.Errorf("by the next process: %q", got)
	}
	gone := source(t, "a-value-that-goes")
	unread := map[string]Source{"key": source(t, "the-third-value")}
	if err := w.SetSecrets(t.Context(), map[string]Source{"gone": gone}, unread); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != "Bearer the-second-value" {
		t.Errorf("one that was left: %q", got)
	}
	f, err := gone()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Truncate(f.Name(), 0), f.Close()); err != nil {
		t.Fatal(err)
	}
	old = w.pid()
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "a third process", func() bool { pid := w.pid(); return pid != 0 && pid != old })
	if got := ask(); got != "Bearer the-third-value" {
		t.Errorf("beside one that has no value any more: %q", got)
	}
	if err := w.SetSecrets(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != string(sbxerr.Secret) {
		t.Errorf("forgotten: %q", got)
	}
	if got := w.SecretUses(); len(got) != 0 {
		t.Errorf("forgotten: %+v", got)
	}
}
