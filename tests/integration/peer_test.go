package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// The users of these tests. They need not be in /etc/passwd.
const (
	ann      = 54321
	bob      = 54322
	stranger = 54323
)

const peers = `
peers:
  - uids: [54321]
    limits: {memory: 600M, cpus: 1, pids: 300, ttl: 1h}
    quota: {sandboxes: 2, memory: 640M, execs: 2}
  - uids: [54322]
`

// Users neither see nor reach what is another's.
func TestPeersAreApart(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	a, b := d.User(t, ann), d.User(t, bob)
	box(t, d, "roots")
	id := strings.TrimSpace(a.Run(t, "create", "--name", "mine", "-m", "64M", "--pids", "50").Stdout)
	job := strings.TrimSpace(a.Run(t, "exec", "-d", "mine", "--", "sleep", "1000").Stdout)
	if l := inspect(t, d, "mine"); l.OwnerUID != ann || l.ExpiresAt == nil {
		t.Errorf("inspected %+v", l)
	}
	for _, who := range []struct {
		user    harness.User
		foreign string
	}{{b, "mine"}, {b, id}, {b, id[:8]}, {a, "roots"}} {
		for _, call := range [][]string{
			{"inspect"}, {"exec", "--json", "", "--", "true"}, {"ps", "-o", "json"}, {"logs", "-o", "json", "--exec", job}, {"attach", "--json", "", job},
			{"wait", "-o", "json"}, {"kill", "-o", "json", "", job}, {"stop", "-o", "json"}, {"pause", "-o", "json"}, {"resume", "-o", "json"},
			{"update", "-o", "json", "--pids", "20"}, {"rm", "-o", "json", "--force"}, {"cp", "--json", ":/etc/passwd", filepath.Join(os.TempDir(), "none")},
		} {
			words, placed := []string{}, false
			for _, w := range call {
				if w == "" || strings.HasPrefix(w, ":") {
					w, placed = who.foreign+w, true
				}
				words = append(words, w)
			}
			if !placed {
				words = append(words, who.foreign)
			}
			f := who.user.Try(words...)
			if f.Code != 125 || !strings.Contains(f.Stdout+f.Stderr, "SBX-107") || !strings.Contains(f.Stdout+f.Stderr, "no sandbox ") || strings.Contains(f.Stdout+f.Stderr, "sleep") {
				t.Errorf("%d: %q: code %d\n%s%s", who.user.UID, words, f.Code, f.Stdout, f.Stderr)
			}
		}
	}
	if out := strings.TrimSpace(b.Run(t, "ls", "-o", "json").Stdout); out != "[]" {
		t.Errorf("bob sees %s", out)
	}
	if jobs := ps(t, d, "mine"); len(jobs) != 1 || jobs[0].State != "running" {
		t.Errorf("after bob: %+v", jobs)
	}
	if l := list(t, d); len(l) != 2 {
		t.Errorf("root sees %+v", l)
	}
	b.Run(t, "create", "--name", "mine-too")
	a.Run(t, "rm", "--force", "mine")
	b.Run(t, "rm", "--force", "mine-too")
}

// Beyond what the configuration grants nothing is made.
func TestPeerCeilingsAndQuotas(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	a := d.User(t, ann)
	fit := []string{"-m", "64M", "--cpus", "0.5", "--pids", "50"}
	create := func(flags ...string) []string {
		return append(append([]string{"create", "--json"}, fit...), flags...)
	}
	for says, flags := range map[string][]string{
		"memory": {"-m", "601M"}, "cpu": {"--cpus", "1.5"}, "pids": {"--pids", "301"}, "1h1m0s": {"--ttl", "61m"}, "compat": {"--profile", "compat"},
	} {
		f := a.Refused(t, "SBX-805", create(flags...)...)
		if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, says) {
			t.Errorf("%q: it does not say %q: %s", flags, says, all)
		}
	}
	a.Run(t, create("--name", "one")...)
	f := a.Refused(t, "SBX-113", create("-m", "600M")...)
	if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, "memory") {
		t.Errorf("message %q", all)
	}
	a.Run(t, create("--name", "two")...)
	a.Refused(t, "SBX-113", create("-m", "16M")...)
	a.Refused(t, "SBX-805", "update", "-o", "json", "-m", "601M", "one")
	a.Refused(t, "SBX-113", "update", "-o", "json", "-m", "600M", "one")
	a.Refused(t, "SBX-805", "update", "-o", "json", "--ttl", "never", "one")
	for range 2 {
		a.Run(t, "exec", "-d", "one", "--", "sleep", "1000")
	}
	a.Refused(t, "SBX-113", "exec", "--json", "two", "--", "true")
	a.Refused(t, "SBX-805", "cleanup", "-o", "json")
	a.Refused(t, "SBX-805", "secret", "ls", "-o", "json")
	a.Refused(t, "SBX-805", "image", "rm", "-o", "json", "base")
	if l := list(t, d); len(l) != 2 {
		t.Errorf("there are %+v", l)
	}
	a.Run(t, "rm", "--force", "one", "two")
	a.Run(t, create("--name", "three")...) // what is gone counts no more
	s := d.User(t, stranger)
	s.Refused(t, "SBX-805", "ls", "-o", "json")
	s.Refused(t, "SBX-805", "create", "--json")
}

// Whoever asks again for the same, by its name or by a key, gets the same, also
// from another daemon: a peer as well as a command in a sandbox.
func TestPeersMayRepeatThemselves(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	b := d.User(t, bob)
	in := nestedBox(t, d, "outer")
	ways := [][]string{append([]string{"create", "--ensure", "--name", "e"}, small...), append([]string{"create", "--key", "k"}, small...)}
	callers := map[string]func(...string) string{
		"a peer":  func(args ...string) string { return b.Run(t, args...).Stdout },
		"a child": func(args ...string) string { return in.run(t, args...) },
	}
	made := map[string]string{}
	for who, run := range callers {
		for _, args := range ways {
			id := run(args...)
			made[who+args[1]] = id
			if again := run(args...); again != id {
				t.Errorf("%s: %q made %s and %s", who, args, id, again)
			}
		}
	}
	d.Kill(t)
	d.Launch(t)
	for who, run := range callers {
		for _, args := range ways {
			if again := run(args...); again != made[who+args[1]] {
				t.Errorf("%s: %q made %s, and %s after a restart", who, args, made[who+args[1]], again)
			}
		}
	}
}

// A workspace is what the user itself may read and write, also by way of a
// symlink and of directories that are closed to it.
func TestPeerWorkspaces(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	b := d.User(t, bob)
	own, roots, readable := workspace(t, bob, bob), workspace(t, 0, 0), workspace(t, 0, 0)
	for dir, mode := range map[string]os.FileMode{own: 0o700, roots: 0o700, readable: 0o755} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	hidden := filepath.Join(roots, "open")
	if err := os.Mkdir(hidden, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(hidden, 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	link := filepath.Join(own, "link")
	if err := os.Symlink(roots, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{roots, roots + ":ro", hidden, link, link + ":ro", readable + ":rw"} {
		source, readOnly := strings.CutSuffix(strings.TrimSuffix(dir, ":rw"), ":ro")
		for _, flag := range [][]string{{"--workspace", dir}, {"--mount", fmt.Sprintf("type=bind,src=%s,dst=/data,ro=%t", source, readOnly)}} {
			r := b.Try(slices.Concat([]string{"run", "--json"}, flag, []string{"--", "ls", "-la"})...)
			if r.Code != 125 || !strings.Contains(r.Stdout, `"SBX-`) || strings.Contains(r.Stdout, `"SBX-0`) {
				t.Errorf("%s: code %d\n%s%s", flag, r.Code, r.Stdout, r.Stderr)
			}
		}
	}
	b.Run(t, "run", "--mount", "type=bind,src="+readable+",dst=/data,ro", "--mount", "type=bind,src="+own+",dst=/own", "--", "cp", "-r", "/data", "/own/copy")
	if r := b.Try("run", "--mount", "type=tmpfs,dst=/big,size=900G", "--", "true"); r.Code != 125 || !strings.Contains(r.Stderr, "tmpfs") {
		t.Errorf("a large tmpfs: code %d, %s", r.Code, r.Stderr)
	}
	b.Run(t, "run", "--workspace", readable+":ro", "--", "ls")
	b.Run(t, "run", "--workspace", own, "--", "touch", "made")
	st, err := os.Stat(filepath.Join(own, "made"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(st); uid != bob {
		t.Errorf("what was made belongs to %d", uid)
	}
	d.Run(t, "run", "--workspace", roots, "--", "ls") // root may
	d.AwaitNoSandbox(t)
}

// Members of a group may call, by whichever of their groups it is: each with a
// quota of its own, and none sees another's. The first entry that is for a
// caller counts.
func TestPeerGroups(t *testing.T) {
	t.Parallel()
	const agents = 54400
	d := harness.StartWith(t, `
peers:
  - uids: [54322]
    quota: {sandboxes: 1}
  - groups: [54400]
    limits: {memory: 600M}
    quota: {sandboxes: 2}
`)
	primary, supplementary := d.User(t, ann), d.User(t, stranger)
	primary.GID, supplementary.Groups = agents, []uint32{7, agents}
	outside := d.User(t, ann)
	outside.Refused(t, "SBX-805", "ls", "-o", "json") // the same user without the group
	create := func(name string) []string { return []string{"create", "-o", "json", "-m", "64M", "--name", name} }
	for _, u := range []harness.User{primary, supplementary} {
		u.Run(t, create("one")...)
		u.Run(t, create("two")...)
		u.Refused(t, "SBX-113", create("three")...)
		u.Refused(t, "SBX-805", append(create("big"), "-m", "601M")...)
		var own []listed
		u.Run(t, "ls", "-o", "json").JSON(t, &own)
		if len(own) != 2 || own[0].OwnerUID != u.UID || own[1].OwnerUID != u.UID {
			t.Errorf("%d sees %+v", u.UID, own)
		}
	}
	both := d.User(t, bob)
	both.Groups = []uint32{agents}
	both.Run(t, create("one")...)
	both.Refused(t, "SBX-113", create("two")...)
	if l := list(t, d); len(l) != 5 {
		t.Errorf("root sees %+v", l)
	}
}

// TestClosedSocket: without peers the socket is root's alone, and the refusal names the
// setting that opens it.
func TestClosedSocket(t *testing.T) {
	f := daemon.User(t, 1001).Refused(t, "SBX-802", "ls", "-o", "json")
	if !strings.Contains(f.Error.Remedy, "peers") || strings.Contains(f.Error.Remedy, "group") {
		t.Errorf("%+v", f.Error)
	}
}
