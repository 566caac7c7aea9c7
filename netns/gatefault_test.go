package netns

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// wantClosed expects that Lead was refused for the reason, and nothing leads.
func wantClosed(t *testing.T, path string, err error, reason, remedy string) {
	t.Helper()
	if sbxerr.Of(err) != sbxerr.NetRule || !strings.Contains(err.Error(), reason) || !strings.Contains(sbxerr.RemedyOf(err), remedy) {
		t.Errorf("Lead = %v (remedy %q); want %q under %s", err, sbxerr.RemedyOf(err), reason, sbxerr.NetRule)
	}
	if err := connectInside(t, open(t, path), "198.18.0.5:443", false); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect to the pool = %v; want %v", err, unix.ENETUNREACH)
	}
	if diffs, err := Check(path, nil); err != nil || len(diffs) > 0 {
		t.Errorf("Check for mode none = %v, %v", diffs, err)
	}
}

func TestLeadWithoutCommands(t *testing.T) {
	needRoot(t)
	gate := Gate{Prefixes: []netip.Prefix{pool}}
	t.Run("none", func(t *testing.T) {
		useCommands(t, nil)
		path := create(t)
		_, err := Lead(path, gate)
		wantClosed(t, path, err, `find "ip`, "install iptables")
	})
	t.Run("none for IPv6", func(t *testing.T) {
		dir := useCommands(t, commandsFor(backendNFT))
		if err := os.Remove(filepath.Join(dir, "ip6tables-save")); err != nil {
			t.Fatal(err)
		}
		path := create(t)
		_, err := Lead(path, gate)
		wantClosed(t, path, err, `find "ip6tables-save"`, "install iptables")
	})
	t.Run("refuses IPv6", func(t *testing.T) {
		dir := useCommands(t, commandsFor(backendNFT))
		broken := "#!/bin/sh\ncase $1 in --version) echo 'v1.8.9 (nf_tables)';; *) echo \"can't initialize table\" >&2; exit 3;; esac\n"
		path := filepath.Join(dir, "ip6tables-restore")
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(broken), 0o755)); err != nil {
			t.Fatal(err)
		}
		path = create(t)
		_, err := Lead(path, gate)
		wantClosed(t, path, err, "can't initialize table", "caisson doctor")
	})
}

// The legacy commands share one lock with all others on the host.
func TestLeadWhileTheLockIsHeld(t *testing.T) {
	needRoot(t)
	saved := lockWait
	t.Cleanup(func() { lockWait = saved })
	lockWait = 1
	useCommands(t, commandsFor(backendLegacy))
	path := create(t)
	lock, err := os.OpenFile("/run/xtables.lock", os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, err = Lead(path, Gate{Prefixes: []netip.Prefix{pool}})
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	wantClosed(t, path, err, "xtables lock", "holds the lock")
	mustLead(t, path, pool)
	wantNoDifference(t, path, pool)
}

// Commands see nothing of the daemon's environment: it could name a folder with
// extensions of somebody's own.
func TestCommandsHaveNoEnvironment(t *testing.T) {
	t.Setenv("XTABLES_LIBDIR", "/nonexistent")
	out, err := command{"/usr/bin/env", "env"}.run("")
	if err != nil || out != "" {
		t.Errorf("env = %q, %v; want nothing", out, err)
	}
}
