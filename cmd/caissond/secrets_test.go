package main

import (
	"fmt"
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
