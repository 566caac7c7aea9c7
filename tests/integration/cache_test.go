package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// caches are profiles that share a cache; one trusts its runs with it.
const caches = `profiles: {reads: {caches: [npm, mine=/mine]}, fills: {caches: [npm, mine=/mine], merge_caches: true}}
peers: [{uids: [54321], volumes: true, profiles: [strict, reads, fills]}]
`

// TestCaches: all sandboxes read what is in a cache, and what one writes reaches others only by a
// run that succeeds, of a profile that says so.
func TestCaches(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, caches)
	data := filepath.Join(d.Root, "volumes", "0+caisson-cache-mine", "data")
	list := func() string {
		return d.Run(t, "run", "--profile", "reads", "--", "sh", "-c", "cd /mine; find . | sort | tr '\\n' ' '; cat a 2>/dev/null; true").Stdout
	}
	const begin = "set -e; cd /mine; echo one >a; mkdir -p d/e; echo two >d/e/f; chmod 600 d/e/f; ln -s a in; echo x >$npm_config_cache/x"
	for _, run := range [][]string{
		{"run", "--profile", "reads", "--", "sh", "-c", begin},                                              // the profile does not say so
		{"run", "--cache", "mine=/mine", "--cache", "npm", "--", "sh", "-c", begin},                         // nor does this one
		{"run", "--profile", "fills", "--", "sh", "-c", begin + "; exit 3"},                                 // it fails
		{"run", "--profile", "fills", "--timeout", "1s", "--", "sh", "-c", begin + "; sleep 1000"},          // nor does it end
		{"run", "--profile", "fills", "--keep", "--name", "kept", "--", "sh", "-c", begin + "; touch more"}, // a session is no run
	} {
		if r := d.Try(run...); strings.Contains(r.Stderr, "SBX-1") {
			t.Fatalf("%q: %s", run, r.Stderr)
		}
		if got := list(); got != ". " {
			t.Fatalf("after %q the cache has %q", run, got)
		}
	}
	if got := d.Run(t, "exec", "kept", "--", "cat", "/mine/a").Stdout; got != "one\n" {
		t.Errorf("its own sandbox reads %q", got)
	}
	d.Run(t, "run", "--profile", "fills", "--", "sh", "-c", begin+"; ln -s /etc/passwd out; ln -s ../../x up; mkfifo pipe")
	if got := list(); got != ". ./a ./d ./d/e ./d/e/f ./in one\n" {
		t.Errorf("the cache has %q", got)
	}
	if st, err := os.Stat(filepath.Join(data, "d/e/f")); err != nil || st.Mode() != 0o600 {
		t.Errorf("the host has %v, %v", st, err)
	}
	if out := d.Run(t, "events", "--json", "--filter", "type=volume.merged").Stdout; strings.Count(out, "volume.merged") != 2 || !strings.Contains(out, `"volume":"caisson-cache-mine"`) {
		t.Errorf("events: %s", out)
	}
	// One that lives has its own. One that began before a change may change the same; the last
	// one counts. What is deleted is gone.
	d.Run(t, "run", "--profile", "fills", "--", "sh", "-c", "cd /mine; echo three >a; rm -r d in")
	if got := list(); got != ". ./a three\n" {
		t.Errorf("the cache has %q", got)
	}
	if got := d.Run(t, "exec", "kept", "--", "cat", "/mine/a").Stdout; got != "one\n" {
		t.Errorf("a sandbox that lived already reads %q", got)
	}
	d.Refused(t, "SBX-232", "volume", "rm", "caisson-cache-mine", "-o", "json")
	d.Run(t, "rm", "--force", "kept")
	// Others have caches of their own.
	user := d.User(t, ann)
	if got := user.Run(t, "run", "--cache", "mine=/mine", "--", "ls", "/mine").Stdout; got != "" {
		t.Errorf("another user reads %q", got)
	}
	user.Run(t, "run", "--profile", "fills", "--", "sh", "-c", "echo ann >/mine/a")
	if got := user.Run(t, "run", "--profile", "reads", "--", "cat", "/mine/a").Stdout; got != "ann\n" {
		t.Errorf("the other user reads %q", got)
	}
	if got := list(); got != ". ./a three\n" {
		t.Errorf("the cache has %q", got)
	}
	if st, err := os.ReadDir(data); err != nil || len(st) != 1 {
		t.Errorf("the volume has %v, %v", st, err)
	}
	d.Refused(t, "SBX-101", "run", "-o", "json", "--cache", "none", "--", "true")
	d.Refused(t, "SBX-104", "run", "-o", "json", "--cache", "x=/etc", "--", "true")
	d.Refused(t, "SBX-101", "run", "-o", "json", "--cache", "npm", "--mount", "type=tmpfs,dst=/var/cache/caisson/npm", "--", "true")
	user.Run(t, "volume", "prune")
	d.Run(t, "volume", "prune")
}

// TestCacheOfSnapshot: a sandbox from a snapshot has the caches as they are when it begins.
func TestCacheOfSnapshot(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, caches)
	box(t, d, "first", "--cache", "mine=/mine")
	d.Run(t, "exec", "first", "--", "sh", "-c", "echo poison >/mine/a; echo kept >/workspace/w")
	d.Run(t, "snapshot", "create", "first", "--name", "snap")
	d.Run(t, "run", "--profile", "fills", "--", "sh", "-c", "echo good >/mine/b")
	box(t, d, "second", "--from", "snap")
	if got := d.Run(t, "exec", "second", "--", "sh", "-c", "ls /mine; cat /workspace/w; echo own >/mine/c; cat /mine/c").Stdout; got != "b\nkept\nown\n" {
		t.Errorf("it has %q", got)
	}
	d.Run(t, "rm", "--force", "first", "second")
	d.Run(t, "snapshot", "rm", "snap")
	d.Run(t, "volume", "prune")
}
