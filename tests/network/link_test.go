package network

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A link leads to one port of one sandbox, by a name of its own, and nowhere else.
func TestLinks(t *testing.T) {
	reaches(t, "web.example:80")
	db := create(t, "--name", "postgres", "--expose", insidePort)
	db.serve(t)
	stranger := create(t, "--allow", "web.example")
	if said := stranger.try("echo", "db:"+insidePort); !strings.Contains(said, "error:") {
		t.Fatalf("without a link: %q", said)
	}
	app := create(t, "--link", "db=postgres:"+insidePort, "--link", "other=postgres:"+insidePort)
	check(t, app, []attempt{
		{"the port", []string{"echo", "db:" + insidePort}, "echo ping"},
		{"by another name", []string{"echo", "other:" + insidePort}, "echo ping"},
		{"who comes", []string{"from", "db:" + insidePort}, "from 127.0.0.1"},
		{"another port", []string{"echo", "db:8081"}, "error:"},
		{"its own loopback", []string{"echo", "127.0.0.1:" + insidePort}, "error:"},
		{"a name below it", []string{"echo", "x.db:" + insidePort}, "error:"},
		{"the sandbox's name", []string{"echo", "postgres:" + insidePort}, "error:"},
		{"what no rule allows", []string{"http", "http://web.example/"}, "error:"},
	})
	daemon.Run(t, "update", "--allow", "web.example", app.id)
	check(t, app, []attempt{
		{"what a rule allows now", []string{"http", "http://web.example/"}, "200 I am " + public},
		{"the link after an update", []string{"echo", "db:" + insidePort}, "echo ping"},
	})
	if said := db.try("http", "http://web.example/"); !strings.Contains(said, "error:") {
		t.Errorf("who exposes a port reaches out: %q", said)
	}
	notReached(t, "127.0.0.1:"+insidePort)
}

// A link is cut with the sandbox that it leads to, and another one of the same name is
// not meant.
func TestLinkCut(t *testing.T) {
	db := sandbox{strings.TrimSpace(daemon.Run(t, "create", "--workspace", clientDir(t)+":ro", "--name", "store", "--expose", insidePort).Stdout), daemon}
	t.Cleanup(func() { daemon.Try("rm", "-f", db.id) }) // where it got no further
	db.serve(t)
	app := create(t, "--link", "db=store:"+insidePort)
	held := app.held(t, "db:"+insidePort)
	daemon.Run(t, "rm", "-f", db.id)
	select {
	case said := <-held:
		if said != "ended" && !strings.Contains(said, "reset") {
			t.Errorf("it ended with %q", said)
		}
	case <-time.After(5 * time.Second):
		t.Error("it outlives the sandbox that it leads to")
	}
	again := create(t, "--name", "store", "--expose", insidePort)
	again.serve(t)
	if said := app.try("echo", "db:"+insidePort); !strings.Contains(said, "error:") {
		t.Errorf("another sandbox of that name: %q", said)
	}
	list := traffic(t, app)
	for _, want := range []entry{{Kind: "link", Verdict: "allowed", Name: "db"}, {Kind: "link", Verdict: "failed", Name: "db", Code: "SBX-705"}} {
		if !slices.ContainsFunc(list, func(e entry) bool {
			return e.Kind == want.Kind && e.Verdict == want.Verdict && e.Name == want.Name && e.Code == want.Code
		}) {
			t.Errorf("no %+v in %+v", want, list)
		}
	}
	if rules := daemon.Run(t, "policy", "learn", app.id).Stdout; rules != "" {
		t.Errorf("a link needs no rule: %q", rules)
	}
}

// Both sides agree, or there is no link.
func TestLinkRefused(t *testing.T) {
	create(t, "--name", "shut")
	create(t, "--name", "ajar", "--expose", insidePort)
	for _, link := range []string{"db=shut:" + insidePort, "db=ajar:8081", "db=absent:" + insidePort, "db.example=ajar:" + insidePort, "db=ajar", "ajar:8080", "localhost=ajar:" + insidePort} {
		if f := daemon.Refused(t, "SBX-404", "create", "--json", "--link", link); !strings.Contains(f.Error.Message+f.Error.Cause, link) {
			t.Errorf("%s: %+v", link, f)
		}
	}
	daemon.Refused(t, "SBX-404", "create", "--json", "--network", "none", "--link", "db=ajar:"+insidePort)
	daemon.Refused(t, "SBX-101", "create", "--json", "--expose", "53")
	daemon.Refused(t, "SBX-101", "create", "--json", "--expose", "70000")
}

// Links are there again with the next daemon.
func TestLinkDaemonKilled(t *testing.T) {
	db := create(t, "--name", "lasting", "--expose", insidePort)
	db.serve(t)
	app := create(t, "--link", "db=lasting:"+insidePort)
	daemon.Kill(t)
	daemon.Launch(t)
	app.await(t, 10*time.Second, "echo ping", "echo", "db:"+insidePort)
}
