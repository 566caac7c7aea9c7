package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// A route uses a key from each source, which is nowhere but in the gateway.
func TestRouteSources(t *testing.T) {
	need.Tools(t, "curl", "dpkg")
	m := startModels(t)
	reaches(t, modelsAt)
	asks(t, "models.example")
	credentials := t.TempDir()
	if err := os.WriteFile(filepath.Join(credentials, "models-key"), []byte(canary+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	printer := writeFile(t, "print-key", "#!/bin/sh\ncat $1\n")
	if err := os.Chmod(printer, 0o700); err != nil {
		t.Fatal(err)
	}
	d := harness.New(t)
	d.Wrap, d.Env = host.enter(), []string{"CREDENTIALS_DIRECTORY=" + credentials, "MODELS_KEY=" + canary, "HOST_NOTE=not-a-secret"}
	d.Config = sourced(m, "credential:models-key", "env:MODELS_KEY", "command:"+printer+" "+filepath.Join(credentials, "models-key"))
	host.watchInside(d)
	d.Launch(t)
	t.Cleanup(func() {
		d.Stop(t)
		d.CheckNothingLeft(t)
		host.leave(t, d)
	})
	if !strings.Contains(environOf(t, d.PID()), "HOST_NOTE=not-a-secret") { // the control
		t.Error("the environment of the daemon is not seen")
	}
	d.Run(t, "image", "from-host", "tools", "--package", "curl")
	s := createFor(t, d, "--profile", "agent")
	ask := func(label string) string {
		return d.Try("exec", s.id, "--", "curl", "-sS", "-i", "-m", "20", "--noproxy", "*", "http://"+label+".caisson.internal/models").Stdout
	}
	used := func(t *testing.T, label string) {
		t.Helper()
		m.take()
		if got := ask(label); !strings.Contains(got, "200 OK") || strings.Contains(got, canary) {
			t.Errorf("%s: %q", label, got)
		}
		if seen := m.take(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+canary {
			t.Errorf("%s: the upstream was asked %+v", label, seen)
		}
	}
	used(t, "a")
	used(t, "b")
	used(t, "c")
	searchCanary(t, d, s, "models-key", "models.example")
	t.Run("after a reload", func(t *testing.T) {
		d.Run(t, "config", "reload")
		used(t, "a")
		used(t, "b")
		used(t, "c")
	})
	t.Run("in the next gateway", func(t *testing.T) {
		if err := syscall.Kill(gatewayOf(t, d), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(10*time.Second, func() bool { return strings.Contains(ask("a"), "200 OK") })
		used(t, "a")
		used(t, "b")
		used(t, "c")
	})
}

// sourced is a configuration with the routes a, b and c to m, each with a key of its own.
func sourced(m *models, a, b, c string) string {
	route := func(label, key string) string {
		return fmt.Sprintf("      %s: {upstream: \"https://models.example:8443/v1\", credential: %s, ca: \"file:%s\"}\n", label, key, m.ca)
	}
	return fmt.Sprintf("network: {dns: [%s]}\nsecrets: {models-key: %q, other-key: %q, printed-key: %q}\nprofiles:\n  agent:\n    image: tools\n    routes:\n", resolver, a, b, c) +
		route("a", "models-key") + route("b", "other-key") + route("c", "printed-key")
}

func environOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A key that a command prints is taken anew; while the command fails, the one before is used.
func TestRouteRefresh(t *testing.T) {
	need.Tools(t, "curl", "dpkg")
	m := startModels(t)
	reaches(t, modelsAt)
	asks(t, "models.example")
	key := writeFile(t, "key", canary+"\n")
	printer := writeFile(t, "print-key", "#!/bin/sh\nexec cat $1\n")
	if err := os.Chmod(printer, 0o700); err != nil {
		t.Fatal(err)
	}
	line := "command:" + printer + " " + key
	d := launch(t, "secrets_refresh: 1s\n"+sourced(m, line, line, line))
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
		t.Fatalf("it is %q", got)
	}
	if err := os.WriteFile(key, []byte("another-key-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool { return arrives() == "Bearer another-key-0123456789" }) {
		t.Error("the new key is not used")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	const warning = "secrets not taken anew"
	if !until(20*time.Second, func() bool { return strings.Contains(d.Log(), warning) }) {
		t.Error("no warning")
	}
	time.Sleep(2500 * time.Millisecond) // two more that fail
	if got := arrives(); got != "Bearer another-key-0123456789" || strings.Count(d.Log(), warning) != 1 {
		t.Errorf("it is %q, with %d warnings", got, strings.Count(d.Log(), warning))
	}
	if err := os.WriteFile(key, []byte("a-third-key-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !until(20*time.Second, func() bool { return arrives() == "Bearer a-third-key-0123456789" }) {
		t.Error("the third key is not used")
	}
}
