package network

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// launch starts another daemon in the world, which goes with t.
func launch(t *testing.T, config string) *harness.Daemon {
	t.Helper()
	return launchIn(t, host.enter(), config)
}

// launchIn starts another daemon by what is put before its command line.
func launchIn(t *testing.T, enter []string, config string) *harness.Daemon {
	t.Helper()
	d := harness.New(t)
	d.Wrap, d.Config = enter, config
	host.watchInside(d)
	d.Launch(t)
	t.Cleanup(func() {
		d.Stop(t)
		d.CheckNothingLeft(t)
		host.leave(t, d)
	})
	return d
}

// pool is what stats tell of one.
type pool struct {
	Profile           string
	Ready, Size, Hits int64
}

// poolOf is that of a profile, which there is one of.
func poolOf(t *testing.T, d *harness.Daemon, profile string) (p pool) {
	t.Helper()
	var stats struct{ Pools []pool }
	d.Run(t, "info", "--json").JSON(t, &stats)
	for _, other := range stats.Pools {
		if other.Profile == profile {
			p = other
		}
	}
	return p
}

// ready waits until the pool of a profile is full, and returns how many requests it has served.
func ready(t *testing.T, d *harness.Daemon, profile string) int64 {
	t.Helper()
	var p pool
	if !until(time.Minute, func() bool { p = poolOf(t, d, profile); return p.Size > 0 && p.Ready == p.Size }) {
		t.Fatalf("the pool is not full: %+v", p)
	}
	return p.Hits
}

// A ready sandbox gets the policy of who takes it, and no other.
func TestPool(t *testing.T) {
	reaches(t, "web.example:80", "other.example:80", elsewhere+":80")
	d := launch(t, host.config()+"  - {profile: web, size: 1}\n")
	for i, tt := range []struct {
		flags           []string
		reached, denied string
	}{
		{nil, "http://web.example/", "http://other.example/"},
		{[]string{"--allow", "other.example"}, "http://other.example/", "http://web.example/"},
		{[]string{"--allow", "93.184.215.96/29:80"}, "http://" + elsewhere + "/", "http://" + public + "/"},
		{nil, "http://web.example/", "http://" + elsewhere + "/"},
	} {
		if hits := ready(t, d, "web"); hits != int64(i) {
			t.Fatalf("%d hits before request %d", hits, i)
		}
		id := strings.TrimSpace(d.Run(t, append([]string{"create", "--profile", "web", "--workspace", clientDir(t) + ":ro"}, tt.flags...)...).Stdout)
		get := func(url string) string {
			r := d.Try("exec", id, "--", "/workspace/client", "http", url)
			return r.Stdout + r.Stderr
		}
		if said := get(tt.reached); !strings.Contains(said, "200") {
			t.Errorf("%q: %s: %q", tt.flags, tt.reached, said)
		}
		if said := get(tt.denied); !strings.Contains(said, "error:") {
			t.Errorf("%q: %s: %q", tt.flags, tt.denied, said)
		}
		d.Run(t, "inspect", id) // compares the namespace with what was declared
		d.Run(t, "rm", "-f", id)
	}
}

// The operator's word is over all that profiles and requests say.
func TestAirGapped(t *testing.T) {
	reaches(t, mirror+":80")
	d := launch(t, "air_gapped: true\nnetwork: {dns: ["+resolver+"], map: {mirror.example: \""+mirror+":80\"}}\n")
	for _, flags := range [][]string{{"--network", "open"}, {"--allow", "web.example"}, {"--allow", "*.example.com"}, {"--allow", "93.184.215.14:80"}} {
		d.Refused(t, "SBX-404", append(append([]string{"run", "--json"}, flags...), "--", "true")...)
	}
	get := func(url string) string {
		r := d.Try("run", "--network", "allow", "--workspace", clientDir(t)+":ro", "--", "/workspace/client", "http", url)
		return r.Stdout + r.Stderr
	}
	if said := get("http://mirror.example/"); !strings.Contains(said, "200 I am "+mirror) {
		t.Errorf("the mirror: %q", said)
	}
	if said := get("http://web.example/"); !strings.Contains(said, "error:") {
		t.Errorf("a name: %q", said)
	}
}

// Who may not name destinations gets what a profile gives.
func TestWhoMayReach(t *testing.T) {
	d := launch(t, host.config()+"peers: [{uids: [12345], profiles: [web]}, {uids: [12346], network: true}]\n")
	bound, free := d.User(t, 12345), d.User(t, 12346)
	bound.Refused(t, "SBX-805", "run", "--json", "--allow", "web.example", "--", "true")
	bound.Refused(t, "SBX-805", "run", "--json", "--network", "open", "--", "true")
	bound.Refused(t, "SBX-805", "run", "--json", "--profile", "web", "--allow", "other.example", "--", "true")
	bound.Refused(t, "SBX-805", "policy", "learn", "--json", "--profile", "web", "--", "true")
	bound.Run(t, "run", "--profile", "web", "--", "true")
	free.Run(t, "policy", "learn", "--", "true")
	free.Run(t, "run", "--allow", "web.example", "--", "true")
	id := strings.TrimSpace(bound.Run(t, "create", "--profile", "web").Stdout)
	bound.Refused(t, "SBX-805", "update", "--json", "--allow", "other.example", id)
	bound.Run(t, "rm", "-f", id)
}
