package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
)

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "print-key")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func withCommand(line string) config.Config {
	c := config.Default()
	c.Secrets = map[string]string{"key": "command:" + line}
	return c
}

// A command runs without a shell and with an empty environment but PATH.
func TestSecretCommand(t *testing.T) {
	t.Setenv("CAISSON_TEST_NOTE", "must-not-be-inherited")
	line := script(t, `echo "value-of-$1-$2"; env | grep -v -e ^PATH= -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=; pwd`) + " a $HOME"
	p := commandSecrets{timeout: 5 * time.Second}
	if err := p.run(t.Context(), withCommand(line)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := valueOf(t, p.open, line); got != "value-of-a-$HOME\n/\n" {
			t.Errorf("it printed %q", got)
		}
	}
}

// A command that fails is refused, shows nothing of what it printed, and leaves the value
// before.
func TestSecretCommandRefused(t *testing.T) {
	p := commandSecrets{timeout: time.Second}
	good := script(t, "echo sk-live-0123456789")
	if err := p.run(t.Context(), withCommand(good)); err != nil {
		t.Fatal(err)
	}
	open, plain := script(t, "echo sk-live-0123456789"), script(t, "echo sk-live-0123456789")
	for path, mode := range map[string]os.FileMode{open: 0o722, plain: 0o600} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		script(t, "echo sk-live-0123456789; echo sk-live >&2; exit 3"): "failed: exit status 3",
		script(t, "exit 4"): "failed: exit status 4",
		script(t, "echo sk-live-0123456789; exec sleep 60"):    "did not end within 1s",
		script(t, "echo sk-live-0123456789; setsid sleep 2 &"): "did not end within 1s",
		script(t, "exec yes sk-live"):                          "longer than 8194 bytes",
		script(t, "echo sk"):                                   "has 3 bytes",
		script(t, "true"):                                      "has 0 bytes",
		filepath.Join(t.TempDir(), "absent"):                   "no such file",
		open:                                                   "has the mode 0722",
		plain:                                                  "is no program",
		t.TempDir():                                            "is no program",
	} {
		began := time.Now()
		err := p.run(t.Context(), withCommand(line))
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(fmt.Sprint(err), want) || !strings.Contains(fmt.Sprint(err), "secrets.key: command") || !strings.Contains(sbxerr.RemedyOf(err), "env -i") {
			t.Errorf("%v (%s), want %q", err, sbxerr.RemedyOf(err), want)
		}
		if strings.Contains(fmt.Sprint(err), "sk-live") {
			t.Errorf("it shows a secret: %v", err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%q took %s", want, took)
		}
		if got := valueOf(t, p.open, good); got != "sk-live-0123456789\n" {
			t.Errorf("the value before is %q", got)
		}
	}
}
