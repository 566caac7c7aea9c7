package integration

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

type reloaded struct {
	Changed      []string
	NeedsRestart []string `json:"needs_restart"`
	Digest       string
}

func reload(t *testing.T, d *harness.Daemon, config string) (r reloaded) {
	t.Helper()
	d.Configure(t, config)
	d.Run(t, "config", "reload", "-o", "json").JSON(t, &r)
	return r
}

// A reload puts new profiles and peers in force and touches no sandbox that exists.
func TestReload(t *testing.T) {
	t.Parallel()
	const before = "profiles:\n  web: {pids: 50, network: {allow: [before.example]}}\n"
	d := harness.StartWith(t, before+"pools:\n  - {profile: web, size: 1}\n")
	awaitReady(t, d, 1)
	box(t, d, "old", "--profile", "web")
	bin := d.User(t, ann)
	bin.Refused(t, "SBX-802", "ls", "-o", "json")
	awaitReady(t, d, 1)

	const after = "peers:\n  - {uids: [54321], profiles: [web]}\n" +
		"profiles:\n  web: {pids: 60, seccomp: compat, network: {allow: [after.example]}}\nstop_grace: 3s\n"
	r := reload(t, d, after+"pools:\n  - {profile: web, size: 1}\n")
	if want := []string{"profiles.web", "peers"}; !slices.Equal(r.Changed, want) || !slices.Equal(r.NeedsRestart, []string{"stop_grace"}) {
		t.Errorf("reloaded %+v", r)
	}
	await(t, "the key in the log", func() bool { return strings.Contains(d.Log(), `need a restart of the daemon" keys=[stop_grace]`) })
	if out := d.Run(t, "events", "--since", "1h", "--filter", "type=config.changed", "-o", "json").Stdout; !strings.Contains(out, r.Digest) || !strings.Contains(out, `"config_digest_before":"sha256:`) || !strings.Contains(out, `"profiles.web"`) {
		t.Errorf("events: %s", out)
	}
	bin.Run(t, "run", "--profile", "web", "--", "true")
	box(t, d, "new", "--profile", "web")
	for name, host := range map[string]string{"old": "before.example", "new": "after.example"} {
		for _, target := range []string{"before.example", "after.example"} {
			allowed := d.Try("policy", "check", "--sandbox", name, target+":443").Code == 0
			if allowed != (target == host) {
				t.Errorf("sandbox %s: %s is allowed: %v", name, target, allowed)
			}
		}
	}
	if o, n := inspect(t, d, "old").Limits.PIDs, inspect(t, d, "new").Limits.PIDs; o != 50 || n != 60 {
		t.Errorf("old has %d PIDs, new %d", o, n)
	}
	// Rules that are added later begin with those of the profile that the sandbox was made with.
	d.Run(t, "update", "old", "--deny", "other.example")
	if d.Try("policy", "check", "--sandbox", "old", "before.example:443").Code != 0 {
		t.Error("an update of the old sandbox took the new profile's rules")
	}
	_, profiles, _ := strings.Cut(after, "\nprofiles:")
	r = reload(t, d, "profiles:"+profiles+"pools:\n  - {profile: web, size: 1}\n")
	if !slices.Equal(r.Changed, []string{"peers"}) {
		t.Errorf("without peers: %+v", r)
	}
	bin.Refused(t, "SBX-802", "ls", "-o", "json")
}

// A file that is refused changes nothing, and SIGHUP is answered in the log.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles:\n  web: {pids: 50}\n")
	for text, want := range map[string]string{
		"profiles:\n  web: {pids: 60}\n  other: {pidz: 3}\n":          `unknown key \"pidz\", did you mean \"pids\"?`,
		"profiles:\n  web: {pids: sixty}\n":                           "profiles.web.pids",
		"profiles: [\n":                                               "line 2: no YAML: ",
		"profiles:\n  web: {pids: 60}\npeers: [{uids: [no.such]}]\n":  `no user \"no.such\"`,
		"profiles:\n  web: {pids: 60, network: {allow: [\"a b\"]}}\n": "a b",
	} {
		d.Configure(t, text)
		f := d.Try("config", "reload", "-o", "json")
		if f.Code != 125 || !strings.Contains(f.Stdout, want) || !strings.Contains(f.Stdout, "SBX-105") {
			t.Errorf("%q: code %d, %s%s", text, f.Code, f.Stdout, f.Stderr)
		}
	}
	if err := syscall.Kill(d.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "a word about the signal", func() bool { return strings.Contains(d.Log(), "configuration not reloaded, nothing changed") })
	bounds := func() string { return d.Run(t, "spec", "--profile", "web", "-o", "json", "--", "true").Stdout }
	if out := bounds(); !strings.Contains(out, `"pids.max": "50"`) {
		t.Errorf("a refused file changed the profile: %s", out)
	}
	d.Configure(t, "profiles:\n  web: {pids: 60}\n")
	if err := syscall.Kill(d.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "the new profile", func() bool { return strings.Contains(bounds(), `"pids.max": "60"`) })
}

// Root alone may reload: a peer may not.
func TestReloadIsRoots(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	d.User(t, ann).Refused(t, "SBX-805", "config", "reload", "-o", "json")
	if out := d.Run(t, "config", "reload").Stdout; out != "nothing changed\n" {
		t.Errorf("a reload of the same file: %s", out)
	}
}
