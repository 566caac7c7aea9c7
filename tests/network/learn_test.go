package network

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// learn has a policy learnt by a script of the client, and returns what was told.
func learn(t *testing.T, script string, flags ...string) harness.Result {
	t.Helper()
	args := append([]string{"policy", "learn", "--workspace", clientDir(t) + ":ro"}, flags...)
	return daemon.Try(append(args, "--", "sh", "-c", script)...)
}

// What is learnt from a command is enough for it, and no rule of it is too many. That of a
// mapped name gives a network to a sandbox that needs nothing else.
func TestLearn(t *testing.T) {
	reaches(t, "web.example:80", "db.example:5432", mirror+":80")
	asks(t, "inside.example")
	script := "cd /workspace; ./client http http://web.example/; ./client echo db.example:5432; ./client http http://inside.example/; ./client http http://mirror.example/; exit 5"
	r := learn(t, script)
	const rules = "db.example:5432\nmirror.example:80\nweb.example:80\n" // inside is private
	if r.Code != 5 || !strings.HasSuffix(r.Stderr, "caisson: it would have sufficed to allow:\n"+rules) {
		t.Fatalf("%d, %q", r.Code, r.Stderr)
	}
	if strings.Contains(r.Stdout, "sufficed") || strings.Count(r.Stdout, "\n") != 4 || !strings.Contains(r.Stdout, "200 I am "+public) {
		t.Errorf("the command's own output: %q", r.Stdout)
	}
	all := strings.Fields(rules)
	if said := allowing(t, script, all...); successes(said) != 3 || successes(r.Stdout) != 3 {
		t.Errorf("with the rules: %q, learnt in %q", said, r.Stdout)
	}
	for i, rule := range all {
		rest := slices.Delete(slices.Clone(all), i, i+1)
		want := 2
		if rule == "mirror.example:80" { // another rule gives the network
			want = 3
		}
		if said := allowing(t, script, rest...); successes(said) != want {
			t.Errorf("without %s: %q", rule, said)
		}
	}
	const mapped = "cd /workspace; ./client http http://mirror.example/"
	if r := learn(t, mapped); !strings.HasSuffix(r.Stderr, "caisson: it would have sufficed to allow:\nmirror.example:80\n") {
		t.Errorf("of a mapped name alone: %q", r.Stderr)
	}
	if said := allowing(t, mapped, "mirror.example:80") + allowing(t, mapped); successes(said) != 1 {
		t.Errorf("the mapped name with its rule, and without: %q", said)
	}
}

// allowing runs a script of the client that may reach what rules allow.
func allowing(t *testing.T, script string, rules ...string) string {
	t.Helper()
	args := []string{"run", "--workspace", clientDir(t) + ":ro"}
	for _, rule := range rules {
		args = append(args, "--allow", rule)
	}
	return daemon.Try(append(args, "--", "sh", "-c", script)...).Stdout
}

func successes(said string) int {
	return strings.Count(said, "200 I am") + strings.Count(said, "echo ping")
}

// A policy is learnt in a ready sandbox as in one that is made for it.
func TestLearnOutOfThePool(t *testing.T) {
	d := launch(t, "network: {dns: ["+resolver+"]}\nprofiles: {reaching: {network: {mode: open}}}\npools: [{profile: reaching, size: 1}]\n")
	reaches(t, "web.example:80")
	hits := ready(t, d, "reaching")
	r := d.Try("policy", "learn", "--profile", "reaching", "--workspace", clientDir(t)+":ro", "--", "/workspace/client", "http", "http://web.example/")
	if r.Code != 0 || !strings.HasSuffix(r.Stderr, "caisson: it would have sufficed to allow:\nweb.example:80\n") {
		t.Errorf("%d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	if p := poolOf(t, d, "reaching"); p.Hits != hits+1 {
		t.Errorf("the pool did not serve it: %+v", p)
	}
}

// What is open when the command ends counts, and what it is told is told.
func TestLearnOfOpenConnections(t *testing.T) {
	reaches(t, "db.example:5432")
	script := "/workspace/client hold db.example:5432 > /tmp/said & until grep -q held /tmp/said; do sleep 0.05; done"
	var told struct {
		ExitCode int `json:"exit_code"`
		Sandbox  struct{ Network string }
		Learned  struct{ Rules, Warnings []string }
	}
	learn(t, script, "--json").JSONIn(t, "result", &told)
	if told.ExitCode != 0 || told.Sandbox.Network != "open" || !slices.Equal(told.Learned.Rules, []string{"db.example:5432"}) || len(told.Learned.Warnings) != 0 {
		t.Errorf("%+v", told)
	}
}

// The hosts of a site have names that no registry gave, or that one has too. Rules with
// private allow them, and learn tells these rules.
func TestZonesOfASite(t *testing.T) {
	names := []string{"nexus", "git.corp", "a.b.corp"}
	script := "cd /workspace"
	for _, name := range names {
		host.dns.set(name, private)
		script += "; ./client http http://" + name + "/"
	}
	t.Cleanup(func() { host.dns.forget(names...) })
	reaches(t, "nexus:80", "git.corp:80", "a.b.corp:80")
	if said := allowing(t, script, "nexus,private", "*.corp,private"); strings.Count(said, "200 I am "+private) != 3 {
		t.Errorf("with rules: %q", said)
	}
	r := learn(t, script)
	for _, rule := range []string{"nexus,private", "git.corp:80,private", "a.b.corp:80,private"} {
		if strings.Count(r.Stderr, " was refused: where it is wanted, learn again with --allow "+rule+"\n") != 1 {
			t.Errorf("learn does not tell %s: %q", rule, r.Stderr)
		}
	}
	if successes(r.Stdout) != 0 || !strings.HasSuffix(r.Stderr, "caisson: it reached nothing\n") {
		t.Errorf("without rules: %q, %q", r.Stdout, r.Stderr)
	}
	asks(t, "home.example") // 127.0.0.1
	r = learn(t, script+"; ./client http http://home.example/", "--private")
	const rules = "\na.b.corp:80,private\ngit.corp:80,private\nnexus:80,private\n"
	if !strings.Contains(r.Stderr, "--allow home.example:80,private\n") || !strings.HasSuffix(r.Stderr, rules) || successes(r.Stdout) != 3 {
		t.Errorf("with --private: %q, %q", r.Stdout, r.Stderr)
	}
	daemon.Refused(t, "SBX-101", "policy", "learn", "--json", "--private", "--network", "allow", "--", "true")
}

// A name that does not exist gives no rule, and its lookup counts as no answered one.
func TestLearnOfAbsentNames(t *testing.T) {
	asks(t, "web.example")
	asks(t, "absent.web.example")
	for script, answered := range map[string]string{
		"nslookup -type=a web.example":          `"lookups_answered": 1`,
		"nslookup -type=aaaa web.example":       `"lookups_answered": 0`,
		"! nslookup -type=a absent.web.example": `"lookups_answered": 0`,
	} {
		r := learn(t, script, "--json")
		if r.Code != 0 || !strings.Contains(r.Stdout, answered) || !strings.Contains(r.Stdout, `"rules": []`) {
			t.Errorf("%s: code %d, %s, want %s and no rules", script, r.Code, r.Stdout, answered)
		}
	}
}

func TestLearnGeneralizes(t *testing.T) {
	script := "cd /workspace"
	for i := range 5 {
		name := fmt.Sprintf("n%d.web.example", i)
		host.dns.set(name, public)
		reaches(t, name+":80")
		script += "; ./client http http://" + name + "/"
	}
	file := filepath.Join(t.TempDir(), "rules")
	r := learn(t, script+"; ./client http http://db.example/", "--write", file, "--deny", "db.example")
	if rules, err := os.ReadFile(file); err != nil || string(rules) != "*.web.example:80\n" || strings.Count(r.Stdout, "200 I am") != 5 {
		t.Errorf("learnt %q, %v; %q", rules, err, r.Stdout)
	}
	if r := learn(t, "true"); r.Code != 0 || r.Stderr != "caisson: it reached nothing: it needs no network\n" {
		t.Errorf("%d, %q", r.Code, r.Stderr)
	}
}

func TestLearnRefuses(t *testing.T) {
	daemon.Refused(t, "SBX-101", "policy", "learn", "--json", "--network", "none", "--", "true")
	daemon.Refused(t, "SBX-404", "policy", "learn", "--json", "--allow", "*.com", "--", "true")
	d := launch(t, "air_gapped: true\n")
	d.Refused(t, "SBX-404", "policy", "learn", "--json", "--", "true")
}
