package netns

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// wantClosed expects that InstallRedirect was refused for the reason, and nothing leads.
func wantClosed(t *testing.T, path string, err error, reason, remedy string) {
	t.Helper()
	if sbxerr.Of(err) != sbxerr.NetRule || !strings.Contains(err.Error(), reason) || !strings.Contains(sbxerr.RemedyOf(err), remedy) {
		t.Errorf("Program and InstallRedirect = %v (remedy %q); want %q under %s", err, sbxerr.RemedyOf(err), reason, sbxerr.NetRule)
	}
	if err := connectInside(t, open(t, path), "198.18.0.5:443", false); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect to the pool = %v; want %v", err, unix.ENETUNREACH)
	}
	if diffs, err := Check(path, nil); err != nil || len(diffs) > 0 {
		t.Errorf("Check for mode none = %v, %v", diffs, err)
	}
}

func TestProgramWithoutCommands(t *testing.T) {
	needRoot(t)
	redirect := Redirect{Prefixes: []netip.Prefix{pool}}
	t.Run("none", func(t *testing.T) {
		useCommands(t, nil)
		path := create(t)
		_, err := programAndInstall(path, redirect)
		wantClosed(t, path, err, `find "ip`, "install iptables")
	})
	t.Run("none for IPv6", func(t *testing.T) {
		dir := useCommands(t, commandsFor(backendNFT))
		if err := os.Remove(filepath.Join(dir, "ip6tables")); err != nil {
			t.Fatal(err)
		}
		path := create(t)
		_, err := programAndInstall(path, redirect)
		wantClosed(t, path, err, `find "ip6tables"`, "install iptables")
	})
	t.Run("refuses IPv6", func(t *testing.T) {
		dir := useCommands(t, commandsFor(backendNFT))
		broken := "#!/bin/sh\ncase $1 in --version) echo 'v1.8.9 (nf_tables)';; *) echo \"can't initialize table\" >&2; exit 3;; esac\n"
		path := filepath.Join(dir, "ip6tables")
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(broken), 0o755)); err != nil {
			t.Fatal(err)
		}
		path = create(t)
		_, err := programAndInstall(path, redirect)
		wantClosed(t, path, err, "can't initialize table", "caisson doctor")
	})
}

// fakeCommand replaces a command by a script that does what do says, but for its version.
func fakeCommand(t *testing.T, dir, name, do string) {
	t.Helper()
	path := filepath.Join(dir, name)
	script := "#!/bin/sh\ncase $1 in --version) echo 'iptables v1.8.9 (nf_tables)'; exit;; esac\n" + do + "\n"
	if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// Commands that hang, fail or say too much are told with the code, in time, and nothing leads.
//
//caisson:host an emulated processor is too slow for the bound
func TestProgramWithBrokenCommands(t *testing.T) {
	needRoot(t)
	saved := commandTimeout
	t.Cleanup(func() { commandTimeout = saved })
	commandTimeout = 2 * time.Second
	for do, reason := range map[string]string{
		"PATH=/bin:/usr/bin; sleep 1000; exit 0":                                "did not end within 2s",
		"PATH=/bin:/usr/bin; trap '' TERM; while :; do sleep 1000 & wait; done": "did not end within 2s",
		"case $4 in FORWARD) echo no room >&2; exit 4;; esac":                   "no room",
		"kill -9 $$": "exit status -1",
		"i=0; while [ $i -lt 4000 ]; do echo nonsense; i=$((i+1)); done >&2; exit 1": "nonsense",
	} {
		dir := useCommands(t, commandsFor(backendNFT))
		fakeCommand(t, dir, "ip6tables", do)
		path := create(t)
		began := time.Now()
		_, err := programAndInstall(path, Redirect{Prefixes: []netip.Prefix{pool}})
		if time.Since(began) > 20*time.Second || len(err.Error()) > 3000 {
			t.Errorf("%s: it takes %s to say %d bytes", do, time.Since(began), len(err.Error()))
		}
		wantClosed(t, path, err, reason, "caisson doctor")
		useCommands(t, commandsFor(backendNFT))
		mustInstall(t, path, pool)
		wantNoDifference(t, path, pool)
	}
}

// What a command prints is compared, and nothing else believed of it.
//
//caisson:host takes minutes under emulation and is no matter of the kernel
func TestCheckWithBrokenCommands(t *testing.T) {
	needRoot(t)
	g := Redirect{Prefixes: []netip.Prefix{pool}}
	for do, refused := range map[string]bool{
		"echo -P": true, "echo -N": true, "exit 1": true, // it panics, or says that it fails
		"exit 0": false, "echo '-P OUTPUT ACCEPT'": false, "echo nonsense": false, "printf '\\0\\377'": false, "echo": false,
	} {
		dir := useCommands(t, commandsFor(backendNFT))
		path := create(t)
		mustInstall(t, path, pool)
		checked.Clear()
		fakeCommand(t, dir, "iptables", do)
		diffs, err := Check(path, &g)
		if refused && sbxerr.Of(err) != sbxerr.NetRule || !refused && (err != nil || len(diffs) == 0) {
			t.Errorf("%s: Check = %v, %v", do, diffs, err)
		}
		useCommands(t, commandsFor(backendNFT))
		wantNoDifference(t, path, pool)
	}
}

// The legacy commands share one lock with all others on the host.
//
//caisson:host takes minutes under emulation and is no matter of the kernel
func TestProgramWhileTheLockIsHeld(t *testing.T) {
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
	_, err = programAndInstall(path, Redirect{Prefixes: []netip.Prefix{pool}})
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	wantClosed(t, path, err, "xtables lock", "holds the lock")
	mustInstall(t, path, pool)
	wantNoDifference(t, path, pool)
}

// The daemon's environment could name a folder with extensions of somebody's own: commands
// inherit what is left of it.
func TestCleanEnvironment(t *testing.T) {
	for _, name := range []string{"XTABLES_LIBDIR", "XTABLES_LOCKFILE", "IPTABLES_LIB_DIR", "IP6TABLES_LIB_DIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "CAISSON_OTHER"} {
		t.Setenv(name, "/nonexistent")
	}
	if err := CleanEnvironment(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/usr/bin/env").Output()
	if err != nil || strings.Count(string(out), "=/nonexistent") != 1 || !strings.Contains(string(out), "CAISSON_OTHER=/nonexistent") {
		t.Errorf("env = %q, %v; want one of these variables", out, err)
	}
}
