package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// listed is a secret as it is listed.
type listed struct {
	Name, Source, Error string
	Read                time.Time `json:"read_at"`
	Used                time.Time `json:"used_at"`
	Routes              []string
}

// secretsOf lists the secrets of d. Neither a value nor the arguments of a command are shown.
func secretsOf(t *testing.T, d *harness.Daemon) map[string]listed {
	t.Helper()
	text := d.Run(t, "secret", "ls", "--json").Stdout + d.Run(t, "secret", "ls").Stdout
	for _, never := range []string{canary, "a-word-of-the-line", "another-key"} {
		if strings.Contains(text, never) {
			t.Fatalf("%q is shown: %s", never, text)
		}
	}
	var list []listed
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&list); err != nil {
		t.Fatal(err)
	}
	by := map[string]listed{}
	for _, s := range list {
		by[s.Name] = s
	}
	return by
}

// Operators see where each secret comes from, when it was read and used, by which routes, and
// whether it can be read now.
func TestSecretList(t *testing.T) {
	need.Tools(t, "curl", "dpkg")
	m := startModels(t)
	reaches(t, modelsAt)
	asks(t, "models.example")
	dir := t.TempDir()
	key, printer := filepath.Join(dir, "key"), filepath.Join(dir, "print-key")
	for path, text := range map[string]string{key: canary + "\n", printer: "#!/bin/sh\nexec cat $1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d := launch(t, "secrets_refresh: 1s\n"+sourced(m, "file:"+key, "file:"+key, "command:"+printer+" "+key+" a-word-of-the-line"))
	began := time.Now()
	got := secretsOf(t, d)
	if len(got) != 3 || got["models-key"].Source != "file:"+key || got["printed-key"].Source != "command:"+printer {
		t.Fatalf("%+v", got)
	}
	for name, s := range got {
		if !s.Read.IsZero() || !s.Used.IsZero() || s.Error != "" {
			t.Errorf("before there is a gateway, %s: %+v", name, s)
		}
	}
	if routes := got["printed-key"].Routes; !slices.Equal(routes, []string{"agent/c"}) {
		t.Errorf("%q", routes)
	}
	d.Run(t, "image", "from-host", "tools", "--package", "curl")
	s := createFor(t, d, "--profile", "agent")
	for _, url := range []string{"a.caisson.internal/models", "b.caisson.internal/models"} {
		d.Run(t, "exec", s.id, "--", "curl", "-sS", "-m", "20", "--noproxy", "*", "http://"+url)
	}
	got = secretsOf(t, d)
	if got["models-key"].Read.Before(began) || got["models-key"].Used.Before(began) || got["other-key"].Used.IsZero() || !got["printed-key"].Used.IsZero() {
		t.Errorf("%+v", got)
	}
	before := got["models-key"]
	if err := syscall.Kill(gatewayOf(t, d), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool {
		now := secretsOf(t, d)["models-key"]
		return now.Read.After(before.Read) && now.Used.Equal(before.Used)
	}) {
		t.Errorf("the next gateway: %+v", secretsOf(t, d))
	}
	if err := os.WriteFile(key, []byte("two\nlines of another-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool { return secretsOf(t, d)["printed-key"].Error != "" }) {
		t.Error("what a command prints is no value, and has no error")
	}
	got = secretsOf(t, d)
	for name, why := range map[string]string{"models-key": "the value holds a line end", "printed-key": "the value holds a line end"} {
		if !strings.Contains(got[name].Error, why) {
			t.Errorf("%s: %q, want %q", name, got[name].Error, why)
		}
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool { return strings.Contains(secretsOf(t, d)["printed-key"].Error, "failed: exit status 1") }) {
		t.Errorf("a command that fails: %+v", secretsOf(t, d)["printed-key"])
	}
	if why := secretsOf(t, d)["models-key"].Error; !strings.Contains(why, "no such file") {
		t.Errorf("a file that is not there: %q", why)
	}
	if err := os.WriteFile(key, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool {
		got := secretsOf(t, d)
		return got["models-key"].Error == "" && got["printed-key"].Error == ""
	}) {
		t.Errorf("after it is there again: %+v", secretsOf(t, d))
	}
}
