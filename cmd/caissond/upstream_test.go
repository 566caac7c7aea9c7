package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime/plan"
)

// secretFile makes a file of root's alone.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUpstreamProxy(t *testing.T) {
	if u, err := upstreamProxy(config.UpstreamProxy{}); u != nil || err != nil {
		t.Errorf("none: %v, %v", u, err)
	}
	for _, text := range []string{"agent:s3cret", "agent:s3cret\n", "agent:s3cret\r\n"} {
		u, err := upstreamProxy(config.UpstreamProxy{URL: "http://proxy.corp:3128", Credentials: "file:" + secretFile(t, text)})
		if err != nil || u.Spec().Credentials.Reveal() != "agent:s3cret" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestUpstreamProxyRefuses(t *testing.T) {
	dir := t.TempDir()
	open := secretFile(t, "agent:s3cret")
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "no such file",
		dir:                          "is no regular file",
		fifo:                         "is no regular file",
		open:                         "has the mode 0640",
		secretFile(t, ""):            "is empty",
		secretFile(t, "s3cret"):      "no user, colon and password",
		secretFile(t, "agent:s3cret\nagent:s3cret2\n"):        "control character",
		secretFile(t, "agent:"+strings.Repeat("s3cret", 300)): "longer than 1024 bytes",
	} {
		c := config.Default()
		c.Network.Proxy = config.UpstreamProxy{URL: "http://proxy.corp:3128", Credentials: "file:" + path}
		err := checkNetwork(c, plan.BuiltinProfiles())
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "network.upstream_proxy.credentials") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			continue
		}
		if strings.Contains(err.Error(), "s3cret") || sbxerr.RemedyOf(err) == "" {
			t.Errorf("it shows a secret, or no way out: %v", err)
		}
	}
}

func TestUpstreamProxyOfSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := secretFile(t, "agent:s3cret")
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("%v", err)
	}
}
