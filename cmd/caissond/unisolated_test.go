package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
)

// withHostUser is a configuration with a profile without isolation.
func withHostUser(t *testing.T, user string) config.Config {
	t.Helper()
	c := config.Default()
	c.State = t.TempDir()
	c.Socket = filepath.Join(c.State, "caisson.sock")
	c.Profiles = map[string]config.Profile{"host": {Isolation: "none", Timeout: 1}, "other": {}}
	c.Unisolated = config.Unisolated{Profiles: []string{"host"}, User: config.Account(user)}
	return c
}

func TestHostUser(t *testing.T) {
	known, err := profiles(withHostUser(t, "43210"))
	if err != nil {
		t.Fatal(err)
	}
	names, user := unisolated(known)
	if len(names) != 1 || names[0] != "host" || user.UID != 43210 || user.GID != 43210 || user.Home != "/" {
		t.Errorf("%q run as %+v", names, user)
	}
	if checks := isolationChecks(withHostUser(t, "43210")); len(checks) != 1 || checks[0].Status != "warn" || !strings.Contains(checks[0].Detail, "host run as 43210 (uid 43210)") {
		t.Errorf("the doctor finds %+v", checks)
	}
	if checks := isolationChecks(config.Default()); len(checks) > 0 {
		t.Errorf("the doctor finds %+v without such a profile", checks)
	}
	for _, name := range []string{"root", "0", "nobody", "65535", "1879048191", "3000000000", "no-such-user"} {
		if _, err := profiles(withHostUser(t, name)); sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "unisolated.user") {
			t.Errorf("user %s: %v", name, err)
		}
	}
}

// TestHostUserAsPeer: no command without isolation reaches a socket on which it is a peer.
func TestHostUserAsPeer(t *testing.T) {
	c := withHostUser(t, "43210")
	c.Peers = []config.Peer{{UIDs: []config.Account{"43210"}}}
	if _, err := settingsOf(c); err != nil {
		t.Errorf("a socket in the state: %v", err)
	}
	c.Socket = filepath.Join(t.TempDir(), "caisson.sock")
	if _, err := settingsOf(c); sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "lies outside of state") {
		t.Errorf("a socket elsewhere: %v", err)
	}
	c.Peers[0].UIDs[0] = "43211"
	if _, err := settingsOf(c); err != nil {
		t.Errorf("a socket elsewhere for somebody else: %v", err)
	}
}
