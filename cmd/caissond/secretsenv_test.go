package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
)

// Variables are taken once, and can be opened any number of times.
func TestStartVariables(t *testing.T) {
	t.Setenv("CAISSON_TEST_KEY", "sk-live-0123456789")
	t.Setenv("CAISSON_TEST_SHORT", "sk-live")
	c := config.Default()
	c.Secrets = map[string]string{"one": "env:CAISSON_TEST_KEY", "same": "env:CAISSON_TEST_KEY", "short": "env:CAISSON_TEST_SHORT"}
	var v startVariables
	if err := v.take(c); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := valueOf(t, v.open, "CAISSON_TEST_KEY"); got != "sk-live-0123456789" {
			t.Errorf("it is %q", got)
		}
	}
	if _, err := v.open("CAISSON_TEST_SHORT"); err == nil || !strings.Contains(err.Error(), "has 7 bytes") || strings.Contains(err.Error(), "sk-live") {
		t.Errorf("a short value: %v", err)
	}
	for _, name := range []string{"CAISSON_TEST_KEY", "CAISSON_TEST_SHORT"} {
		if value, ok := os.LookupEnv(name); ok {
			t.Errorf("%s is still there: %q", name, value)
		}
	}
	t.Setenv("CAISSON_TEST_LATER", "sk-live-0123456789") // as if it was there, but not named
	c.Secrets = map[string]string{"later": "env:CAISSON_TEST_LATER"}
	if err := v.take(c); err != nil {
		t.Fatal(err)
	}
	if _, err := v.open("CAISSON_TEST_LATER"); err == nil || !strings.Contains(err.Error(), "was not in the environment") {
		t.Errorf("a variable of a reload: %v", err)
	}
	err := checkOwnSecrets(c)
	if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), `secrets.later: variable "CAISSON_TEST_LATER" was not`) || !strings.Contains(sbxerr.RemedyOf(err), "start the daemon with the variable") {
		t.Errorf("%v (%s)", err, sbxerr.RemedyOf(err))
	}
}

// What the kernel shows of the environment of a process has no secret that it has taken.
func TestStartVariablesAreCleared(t *testing.T) {
	const key, other, value = "CAISSON_TEST_KEY", "CAISSON_TEST_OTHER", "sk-live-0123456789"
	if os.Getenv("CAISSON_TEST_CLEARED") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestStartVariablesAreCleared$", "-test.v")
		cmd.Env = []string{"CAISSON_TEST_CLEARED=1", key + "=" + value, other + "=" + value}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	shown := func(name string) bool {
		b, err := os.ReadFile("/proc/self/environ")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(b, []byte(fmt.Sprintf("%s=%s\x00", name, value)))
	}
	if !shown(key) || !shown(other) {
		t.Fatal("the variables are not shown before")
	}
	c := config.Default()
	c.Secrets = map[string]string{"key": "env:" + key}
	var v startVariables
	if err := v.take(c); err != nil {
		t.Fatal(err)
	}
	if shown(key) || !shown(other) || os.Getenv(other) != value {
		t.Error("the wrong variables are cleared")
	}
	if got := valueOf(t, v.open, key); got != value {
		t.Errorf("it is %q", got)
	}
}
