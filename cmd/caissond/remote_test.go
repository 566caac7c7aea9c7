package main

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/tests/harness"
)

// The doctor tells of a certificate that ends soon, and of one with which nobody can connect.
func TestRemoteChecks(t *testing.T) {
	if checks := remoteChecks(config.Default(), time.Now()); len(checks) > 0 {
		t.Errorf("the doctor finds %+v without an address", checks)
	}
	dir, now := t.TempDir(), time.Now()
	c := config.Default()
	c.Listen.TCP = "127.0.0.1:7443"
	c.Listen.Cert, c.Listen.Key = harness.NewAuthority(t, dir, "ca").Sign(t, dir, "localhost", now.Add(30*24*time.Hour))
	for days, want := range map[int]struct{ status, says string }{
		0:  {"ok", "until "},
		15: {"ok", "until "},
		17: {"warn", "until "},
		31: {"warn", "has expired"},
	} {
		checks := remoteChecks(c, now.Add(time.Duration(days)*24*time.Hour))
		if len(checks) != 1 || checks[0].Status != want.status || !strings.Contains(checks[0].Detail, want.says) || (checks[0].Remedy == "") != (want.status == "ok") {
			t.Errorf("after %d days: %+v", days, checks)
		}
	}
}
