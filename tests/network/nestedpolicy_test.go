package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// generations lets the sandboxes of a profile have two generations below them.
func generations() string {
	return strings.Replace(host.config(), "  ready: {}\n", "  ready: {}\n  team: {nested: {enter: true, depth: 2}}\n", 1)
}

// maker is a sandbox that makes others.
type maker struct {
	sandbox
	client []string // a command line of the host that runs caisson inside
}

// createMaker makes one with both clients in its workspace.
func createMaker(t *testing.T, d *harness.Daemon, flags ...string) maker {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{harness.Bin(t, "caisson"), filepath.Join(clientDir(t), "client")} {
		program, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(path)), program, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for above := dir; above != os.TempDir(); above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"create", "--nested", "--profile", "team", "-m", "256M", "--tmpfs", "32M", "--cpus", "2", "--pids", "200", "--workspace", dir + ":ro"}, flags...)
	s := sandbox{strings.TrimSpace(d.Run(t, args...).Stdout), d}
	t.Cleanup(func() { d.Run(t, "rm", "-f", s.id); host.settle(t) })
	return maker{s, []string{"exec", s.id, "--", "/workspace/caisson"}}
}

// making is the command line for a child.
func making(flags ...string) []string {
	return append([]string{"create", "-o", "json", "--profile", "team", "-m", "64M", "--tmpfs", "32M", "--cpus", "0.5", "--pids", "50", "--workspace", "/workspace:ro"}, flags...)
}

// caisson runs the client of the daemon inside.
func (m maker) caisson(args ...string) harness.Result {
	return m.of.Try(append(m.client[:len(m.client):len(m.client)], args...)...)
}

// child makes one.
func (m maker) child(t *testing.T, flags ...string) maker {
	t.Helper()
	var made struct{ ID string }
	m.caisson(making(flags...)...).JSON(t, &made)
	if made.ID == "" {
		t.Fatalf("%q: no child", flags)
	}
	return maker{sandbox{made.ID, m.of}, append(m.client[:len(m.client):len(m.client)], "exec", made.ID, "--", "/workspace/caisson")}
}

// What the tests below reach.
var (
	web = []string{"http", "http://web.example/"}
	db  = []string{"echo", "db.example:5432"}
)

const (
	gotWeb     = "200 I am " + public
	gotDB      = "echo ping"
	gotNothing = "error:"
)

// A child has no network without a word. With one it has its parent's policy or a part of
// it, and what is more is refused at once.
func TestNestedPolicy(t *testing.T) {
	reaches(t, "web.example:80", "db.example:5432", "other.example:80", elsewhere+":80")
	d := launch(t, generations())
	outer := createMaker(t, d, "--allow", "web.example", "--allow", "db.example:5432", "--allow", "93.184.215.96/29:80")
	check(t, outer.sandbox, []attempt{
		{"the parent, web", web, gotWeb}, {"the parent, db", db, gotDB}, {"the parent, an address", []string{"http", "http://" + elsewhere + "/"}, "200"},
	})
	check(t, outer.child(t).sandbox, []attempt{{"a child, web", web, gotNothing}, {"a child, db", db, gotNothing}})
	part := outer.child(t, "--allow", "db.example:5432")
	check(t, part.sandbox, []attempt{{"a part, db", db, gotDB}, {"a part, web", web, gotNothing}, {"a part, an address", []string{"http", "http://" + elsewhere + "/"}, gotNothing}})
	whole := outer.child(t, "--network", "allow", "--deny", "db.example")
	check(t, whole.sandbox, []attempt{
		{"all but db, web", web, gotWeb}, {"all but db, db", db, gotNothing}, {"all but db, an address", []string{"http", "http://" + elsewhere + "/"}, "200"},
		{"what nobody may", []string{"http", "http://other.example/"}, gotNothing},
	})
	address := outer.child(t, "--allow", elsewhere+":80")
	check(t, address.sandbox, []attempt{{"an address", []string{"http", "http://" + elsewhere + "/"}, "200"}, {"an address, web", web, gotNothing}})
	for _, tt := range []struct {
		code, says string
		flags      []string
	}{
		{"SBX-406", `"other.example"`, []string{"--allow", "other.example", "--allow", "web.example"}},
		{"SBX-406", "port 22", []string{"--allow", "web.example:80+22"}},
		{"SBX-406", `option "private"`, []string{"--allow", "web.example:80,private"}},
		{"SBX-406", `not "open"`, []string{"--network", "open"}},
		{"SBX-406", `not "bridge"`, []string{"--network", "bridge"}},
		{"SBX-404", "covers every host", []string{"--allow", "*"}},
		{"SBX-805", "resolvers of its parent", []string{"--dns", resolver, "--network", "allow"}},
		{"SBX-805", "no links", []string{"--link", "x=" + part.id + ":80"}},
		{"SBX-805", "--allow-ech", []string{"--allow-ech", "--network", "allow"}},
		{"SBX-805", "publishes no port", []string{"-p", "0:80", "--network", "allow"}},
	} {
		f := outer.caisson(making(tt.flags...)...).Refused(t, tt.code)
		if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, tt.says) {
			t.Errorf("%q: it does not say %q: %s", tt.flags, tt.says, all)
		}
		if tt.code == "SBX-406" && tt.flags[0] == "--allow" && !strings.Contains(f.Error.Remedy, "web.example, db.example:5432") {
			t.Errorf("%q: remedy %q", tt.flags, f.Error.Remedy)
		}
	}
	closed := createMaker(t, d)
	closed.caisson(making("--network", "allow")...).Refused(t, "SBX-406")
	if r := outer.caisson("update", "--allow", "web.example:80", part.id); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	check(t, part.sandbox, []attempt{{"after an update, web", web, gotWeb}, {"after an update, db", db, gotNothing}})
	outer.caisson("update", "-o", "json", "--allow", "other.example", part.id).Refused(t, "SBX-406")
	d.Refused(t, "SBX-406", "update", "-o", "json", "--allow", "other.example", part.id)
	if r := outer.caisson("update", "--allow", "", part.id); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	check(t, part.sandbox, []attempt{{"with no rule left, web", web, gotNothing}, {"with no rule left, db", db, gotNothing}})
}

// awaitCut fails t unless the connection ends within a second.
func awaitCut(t *testing.T, what string, held <-chan string) {
	t.Helper()
	select {
	case said := <-held:
		if said != "ended" && !strings.Contains(said, "reset") {
			t.Errorf("%s: it ended with %q", what, said)
		}
	case <-time.After(time.Second):
		t.Errorf("%s goes on", what)
	}
}

// What a parent may no longer reach, no generation below it may: what is open ends with the
// parent's. What comes back comes back, as far as it was asked for. A killed daemon changes
// nothing of it.
func TestNestedPolicyFollows(t *testing.T) {
	reaches(t, "web.example:80", "db.example:5432")
	d := launch(t, generations())
	outer := createMaker(t, d, "--allow", "web.example", "--allow", "db.example:5432")
	child := outer.child(t, "--nested", "--network", "allow", "-m", "128M")
	grandchild := child.child(t, "--allow", "db.example:5432", "-m", "32M", "--cpus", "0.1")
	child.caisson(making("--allow", "other.example", "-m", "32M", "--cpus", "0.1")...).Refused(t, "SBX-406")
	family := func(when string, childWeb, childDB, grandchildDB string) {
		t.Helper()
		check(t, child.sandbox, []attempt{{when + ": child, web", web, childWeb}, {when + ": child, db", db, childDB}})
		check(t, grandchild.sandbox, []attempt{{when + ": grandchild, web", web, gotNothing}, {when + ": grandchild, db", db, grandchildDB}})
	}
	for _, when := range []string{"at first", "after a kill"} {
		family(when, gotWeb, gotDB, gotDB)
		below, deep := child.held(t, "db.example:5432"), grandchild.held(t, "db.example:5432")
		d.Run(t, "update", "--allow", "web.example", outer.id)
		awaitCut(t, "a connection of a child", below)
		awaitCut(t, "a connection of a grandchild", deep)
		family(when+", narrowed", gotWeb, gotNothing, gotNothing)
		for _, s := range []maker{outer, child, grandchild} {
			if told := d.Run(t, "events", "--json", "--since", "10m", "--filter", "type=sandbox.updated", "--filter", "sandbox="+s.id).Stdout; !strings.Contains(told, "policy_digest") {
				t.Errorf("%s: no event tells of its policy: %q", s.id, told)
			}
		}
		d.Kill(t)
		d.Launch(t)
		child.await(t, 10*time.Second, gotWeb, web...)
		family(when+", narrowed and killed", gotWeb, gotNothing, gotNothing)
		d.Run(t, "update", "--allow", "web.example", "--allow", "db.example:5432", outer.id)
		family(when+", widened", gotWeb, gotDB, gotDB)
		if r := outer.caisson("update", "--deny", "db.example", child.id); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		family(when+", denied by the child's parent", gotWeb, gotNothing, gotNothing)
		if r := outer.caisson("update", "--deny", "", child.id); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	d.Run(t, "update", "--network", "open", "--allow", "", outer.id)
	family("below one that is open", gotNothing, gotNothing, gotNothing) // the child has its parent's rules
	if r := outer.caisson("update", "--allow", "db.example:5432", child.id); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	family("by its own rule", gotNothing, gotDB, gotDB)
}
