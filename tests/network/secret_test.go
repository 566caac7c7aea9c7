package network

import (
	"encoding/json"
	"errors"
	"fmt"
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
	Kept                bool
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

// A secret that a call sets is used at once and replaced by the next call. It is found by the
// next gateway and the next daemon, and removed when no route uses it.
func TestSecretSet(t *testing.T) {
	need.Tools(t, "curl", "dpkg")
	m := startModels(t)
	reaches(t, modelsAt)
	asks(t, "models.example")
	key := writeFile(t, "key", canary+"\n")
	printer := writeFile(t, "print-key", "#!/bin/sh\nexec cat $1\n")
	hangs := writeFile(t, "hangs", "#!/bin/sh\nexec sleep 100\n")
	if err := errors.Join(os.Chmod(printer, 0o700), os.Chmod(hangs, 0o700)); err != nil {
		t.Fatal(err)
	}
	const unused = "network: {dns: [%s]}\nsecrets: {fixed: \"file:%s\"}\nprofiles: {agent: {image: tools}}\n"
	d := launch(t, fmt.Sprintf(unused, resolver, key))
	with := fmt.Sprintf("network: {dns: [%s]}\nsecrets: {fixed: \"file:%s\"}\nprofiles:\n  agent:\n    image: tools\n    routes:\n      a: {upstream: \"https://models.example:8443/v1\", credential: late, ca: \"file:%s\"}\n", resolver, key, m.ca)

	t.Run("refused", func(t *testing.T) {
		fifo := filepath.Join(t.TempDir(), "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		for source, code := range map[string]string{
			"env:HOME": "SBX-101", "fd:3": "SBX-101", canary: "SBX-101", "file:key": "SBX-101",
			"file:" + fifo: "SBX-712", "file:/nonexistent/key": "SBX-712", "file:" + writeFile(t, "short", "short"): "SBX-712",
			"file:" + writeFile(t, "lines", "two\nlines of it"): "SBX-712", "command:/bin/false": "SBX-712",
		} {
			if f := d.Refused(t, code, "secret", "set", "late", "--from", source, "--json"); strings.Contains(fmt.Sprint(f), canary) {
				t.Errorf("%s: %+v", source, f)
			}
		}
		d.Refused(t, "SBX-101", "secret", "set", "late", "--from", "file:"+key, "--refresh", "1ms", "--json")
		d.Refused(t, "SBX-106", "secret", "set", "fixed", "--from", "file:"+key, "--json")
		d.Refused(t, "SBX-106", "secret", "rm", "fixed", "--json")
		d.Refused(t, "SBX-714", "secret", "rm", "late", "--json")
		if got := secretsOf(t, d); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	})

	d.Run(t, "secret", "set", "late", "--from", "command:"+printer+" "+key)
	d.Configure(t, with)
	d.Run(t, "config", "reload")
	d.Run(t, "image", "from-host", "tools", "--package", "curl")
	s := createFor(t, d, "--profile", "agent")
	arrives := func() string {
		m.take()
		d.Try("exec", s.id, "--", "curl", "-sS", "-m", "20", "--noproxy", "*", "http://a.caisson.internal/models")
		if seen := m.take(); len(seen) == 1 {
			return seen[0].Header.Get("Authorization")
		}
		return ""
	}
	if got := arrives(); got != "Bearer "+canary {
		t.Errorf("set: %q", got)
	}
	if got := secretsOf(t, d)["late"]; !got.Kept || got.Source != "command:"+printer || got.Used.IsZero() || !slices.Equal(got.Routes, []string{"agent/a"}) {
		t.Errorf("%+v", got)
	}
	other := writeFile(t, "other", "another-key-0123456789\n")
	d.Run(t, "secret", "set", "late", "--from", "file:"+other)
	if got := arrives(); got != "Bearer another-key-0123456789" {
		t.Errorf("set again: %q", got)
	}
	if err := os.WriteFile(other, []byte("another-key-of-late\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Run(t, "config", "reload")
	if got := arrives(); got != "Bearer another-key-of-late" {
		t.Errorf("reloaded: %q", got)
	}
	d.Refused(t, "SBX-712", "secret", "set", "late", "--from", "command:"+hangs, "--json")
	if got := arrives(); got != "Bearer another-key-of-late" {
		t.Errorf("after a source that hangs: %q", got)
	}
	if err := syscall.Kill(gatewayOf(t, d), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool { return arrives() == "Bearer another-key-of-late" }) {
		t.Errorf("by the next gateway: %q", arrives())
	}
	d.Run(t, "secret", "set", "late", "--from", "file:"+other, "--refresh", "1s")
	d.Kill(t)
	d.Launch(t)
	if !until(20*time.Second, func() bool { return arrives() == "Bearer another-key-of-late" }) {
		t.Errorf("by the next daemon: %q", arrives())
	}
	if err := os.WriteFile(other, []byte("another-key-refreshed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool { return arrives() == "Bearer another-key-refreshed" }) {
		t.Errorf("refreshed: %q", arrives())
	}
	if f := d.Refused(t, "SBX-715", "secret", "rm", "late", "--json"); !strings.Contains(fmt.Sprint(f), "agent/a") {
		t.Errorf("%+v", f)
	}
	held, err := os.ReadFile(filepath.Join(d.Root, "secrets.json"))
	if err != nil || !strings.Contains(string(held), other) || strings.Contains(string(held), "another-key") {
		t.Errorf("%s, %v", held, err)
	}
	d.Configure(t, fmt.Sprintf(unused, resolver, key))
	d.Run(t, "config", "reload")
	d.Run(t, "secret", "rm", "late")
	if got := secretsOf(t, d); len(got) != 1 {
		t.Errorf("removed: %+v", got)
	}
	for kind, want := range map[string]string{"secret.set": `"reason":"file:` + other, "secret.removed": `"credential":"late"`} {
		if told := d.Run(t, "audit", "query", "--json", "--type", kind).Stdout; !strings.Contains(told, want) || !strings.Contains(told, `"caller":"uid 0"`) || strings.Contains(told, "another-key") || strings.Contains(told, key) {
			t.Errorf("%s: %q", kind, told)
		}
	}
	d.Configure(t, with)
	d.Refused(t, "SBX-105", "config", "reload", "--json")
	d.Configure(t, fmt.Sprintf(unused, resolver, key))
}
