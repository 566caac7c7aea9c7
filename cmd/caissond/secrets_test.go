package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
)

func TestSecretsRefused(t *testing.T) {
	dir := t.TempDir()
	open := secretFile(t, "sk-live-0123456789")
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "no such file", dir: "is no regular file", fifo: "is no regular file", open: "has the mode 0640",
		secretFile(t, ""): "has 0 bytes", secretFile(t, "sk-live"): "has 7 bytes", secretFile(t, strings.Repeat("sk-live", 2000)): "longer than 8194 bytes",
	} {
		c.Secrets = map[string]string{"key": "file:" + path}
		err := checkSecrets(c)
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "secrets.key: ") || !strings.Contains(err.Error(), want) || sbxerr.RemedyOf(err) == "" {
			t.Errorf("%v, want %q", err, want)
			continue
		}
		if strings.Contains(err.Error(), "sk-live") {
			t.Errorf("it shows a secret: %v", err)
		}
	}
	good := "file:" + secretFile(t, "sk-live-0123456789\n")
	c.Secrets = map[string]string{"key": good}
	for n := range 63 {
		c.Secrets[fmt.Sprint("key", n)] = good
	}
	if err := checkSecrets(c); err != nil {
		t.Error(err)
	}
	c.Secrets["one more"] = good
	if err := checkSecrets(c); sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "secrets: there are 65, at most 64") {
		t.Error(err)
	}
}

// A credential is a file of the directory that systemd names.
func TestCredential(t *testing.T) {
	c := config.Default()
	c.Secrets = map[string]string{"key": "credential:models-key"}
	if err := checkSecrets(c); err != nil {
		t.Errorf("a command that is no daemon is refused: %v", err)
	}
	refused := func(want string) {
		t.Helper()
		err := checkOwnSecrets(c)
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(fmt.Sprint(err), "secrets.key: "+want) || !strings.Contains(sbxerr.RemedyOf(err), "LoadCredential=models-key:PATH") {
			t.Errorf("%v (%s), want %q", err, sbxerr.RemedyOf(err), want)
		}
	}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	refused(`credential "models-key": systemd gave the daemon none`)
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	refused("open " + dir)
	if err := os.WriteFile(filepath.Join(dir, "models-key"), []byte("sk-live-0123456789\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := checkOwnSecrets(c); err != nil {
		t.Error(err)
	}
	if got := valueOf(t, openCredential, "models-key"); got != "sk-live-0123456789\n" {
		t.Errorf("it is %q", got)
	}
}

func valueOf(t *testing.T, open func(string) (*os.File, error), name string) string {
	t.Helper()
	f, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
