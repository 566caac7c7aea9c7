package network

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// outer are the names that the forwarder alone resolves. They lead elsewhere, so that who
// answers tells who resolved.
var outer = map[string]string{"far.example.com": elsewhere, "late.example.com": elsewhere, "db.example.com": elsewhere, elsewhere: elsewhere}

var throughRules = []string{
	"--allow", "far.example.com", "--allow", "*.example.com:5432", "--allow", "near.example.org", "--allow", "inside.example,private",
	"--allow", "93.184.215.96/29:5432", "--allow", "93.184.215.14:5432", "--allow", "absent.example.com", "--allow", "inner.example.org,private", "--allow", "db.corp",
}

// A host that may leave through a proxy alone does: by name, for nobody else resolves.
func TestUpstreamProxy(t *testing.T) {
	host.dns.set("near.example.org", public)
	host.dns.set("inner.example.org", elsewhere)
	host.dns.set("db.corp", elsewhere)
	t.Cleanup(func() { host.dns.forget("near.example.org", "inner.example.org", "db.corp") })
	f := startForwarder(t, outer)
	t.Run("the control: without it the names do not resolve, and what resolves is reached directly", func(t *testing.T) {
		reaches(t, "inner.example.org:80", elsewhere+":5432")
		asks(t, "far.example.com")
		check(t, create(t, throughRules...), []attempt{
			{"a name", []string{"http", "http://far.example.com/"}, "error:"},
			{"one that resolves", []string{"http", "http://inner.example.org/"}, "200 I am " + elsewhere},
			{"an address", []string{"echo", elsewhere + ":5432"}, "echo ping"},
		})
		if asked := f.take(); len(asked) > 0 {
			t.Errorf("the proxy was asked %q", asked)
		}
	})
	reaches(t, forwarderAt, "near.example.org:80", public+":5432", "inside.example:80", mirror+":80")
	asks(t, "inner.example.org", "db.corp")
	d := launch(t, proxied(t, credentials))
	s := createFor(t, d, throughRules...)
	host.dns.questions()
	for _, tt := range []struct {
		attempt
		asked string // of the forwarder; empty: nothing
	}{
		{attempt{"HTTP", []string{"http", "http://far.example.com/"}, "200 I am " + elsewhere + ", you asked for far.example.com"}, "CONNECT far.example.com:80"},
		{attempt{"TLS", []string{"tls", "far.example.com:443", "far.example.com"}, "I am " + elsewhere}, "CONNECT far.example.com:443"},
		{attempt{"any protocol, by a wildcard", []string{"echo", "db.example.com:5432"}, "echo ping"}, "CONNECT db.example.com:5432"},
		{attempt{"an address", []string{"echo", elsewhere + ":5432"}, "echo ping"}, "CONNECT " + elsewhere + ":5432"},
		{attempt{"what the proxy refuses", []string{"http", "http://absent.example.com/"}, "502 SBX-708 the upstream proxy does not connect to absent.example.com:80: it answers 403 Forbidden"}, "CONNECT absent.example.com:80"},
		{attempt{"an exception by name", []string{"http", "http://near.example.org/"}, "200 I am " + public}, ""},
		{attempt{"an exception by address", []string{"echo", public + ":5432"}, "echo ping"}, ""},
		{attempt{"what is private", []string{"http", "http://inside.example/"}, "200 I am " + private}, ""},
		{attempt{"a mapped name", []string{"http", "http://mirror.example/"}, "200 I am " + mirror}, ""},
		{attempt{"what is public, by a rule for what is private", []string{"http", "http://inner.example.org/"}, "403 SBX-701"}, ""},
		{attempt{"what is public, under a name of this site", []string{"http", "http://db.corp/"}, "403 SBX-701"}, ""},
		{attempt{"a name that no rule allows", []string{"http", "http://other.example.org/"}, "error:"}, ""},
		{attempt{"another Host", []string{"http", "http://far.example.com/", "other.example.org"}, "403 SBX-703"}, ""},
		{attempt{"a literal address that no rule allows", []string{"echo", metadata + ":80"}, "error:"}, ""},
		{attempt{"a port that no rule allows", []string{"echo", elsewhere + ":22"}, "error:"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if said := s.try(tt.args...); !strings.Contains(said, tt.want) {
				t.Errorf("%q, want %q", said, tt.want)
			}
			if asked := f.take(); !slices.Equal(asked, slices.DeleteFunc([]string{tt.asked}, func(a string) bool { return a == "" })) {
				t.Errorf("the proxy was asked %q, want %q", asked, tt.asked)
			}
		})
	}
	for _, asked := range host.dns.questions() {
		if strings.HasSuffix(asked, ".example.com.") {
			t.Errorf("the host's resolver was asked for %s", asked)
		}
	}
	tellsOf(t, d, s)
	nowhereToRead(t, d, s)
}

// tellsOf looks for the proxy where people ask what a sandbox may and did.
func tellsOf(t *testing.T, d *harness.Daemon, s sandbox) {
	t.Helper()
	const way = "through the upstream proxy"
	if r := d.Run(t, "policy", "check", "--sandbox", s.id, "far.example.com"); !strings.Contains(r.Stdout, way) {
		t.Errorf("check: %q", r.Stdout)
	}
	if r := d.Run(t, "policy", "check", "--sandbox", s.id, "near.example.org"); strings.Contains(r.Stdout, way) {
		t.Errorf("check of an exception: %q", r.Stdout)
	}
	if r := d.Run(t, "policy", "explain", s.id); !strings.Contains(r.Stdout, "upstream proxy") || !strings.Contains(r.Stdout, "2 exceptions") {
		t.Errorf("explain: %q", r.Stdout)
	}
	for _, want := range []string{`"reason":"` + way, `"code":"SBX-708"`} {
		var log string
		if !until(5*time.Second, func() bool {
			log = d.Run(t, "policy", "log", "--json", s.id).Stdout
			return strings.Contains(log, want)
		}) {
			t.Errorf("no %q in %s", want, log)
		}
	}
	rules := d.Run(t, "policy", "learn", s.id).Stdout
	for _, want := range []string{"db.example.com:5432\n", "far.example.com:80+443\n", elsewhere + ":5432\n", "inside.example:80,private\n"} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %q was learnt: %q", want, rules)
		}
	}
}

// nowhereToRead looks for the credentials where somebody could read them.
func nowhereToRead(t *testing.T, d *harness.Daemon, s sandbox) {
	t.Helper()
	texts := map[string]string{"the log": d.Log()}
	for _, args := range [][]string{{"policy", "log", "--json", s.id}, {"policy", "explain", "--json", s.id}, {"inspect", "--all", s.id}, {"ls", "--json"}, {"info", "--json"}} {
		texts[fmt.Sprint(args)] = d.Run(t, args...).Stdout
	}
	for _, pid := range []int{d.PID(), gateway(t, d)} {
		for _, file := range []string{"cmdline", "environ"} {
			path := fmt.Sprintf("/proc/%d/%s", pid, file)
			texts[path] = contents(t, path)
		}
	}
	for _, root := range []string{filepath.Join(d.State, "sandboxes"), filepath.Join(d.Root, "sandboxes")} {
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error { // what is not there tells nothing
			if err == nil && e.Type().IsRegular() && e.Name() != "netns" && !strings.Contains(path, "rootfs") {
				texts[path] = contents(t, path)
			}
			return nil
		})
	}
	if len(texts) < 10 {
		t.Fatalf("only %d places were looked at", len(texts))
	}
	for where, text := range texts {
		for _, secret := range secrets() {
			if strings.Contains(text, secret) {
				t.Errorf("the credentials are in %s", where)
			}
		}
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Logf("%s: %v", path, err) // it may have gone
	}
	return string(data)
}

// Where the proxy is dead, nothing public is reached, though it could be; and the same
// after the gateway was replaced.
func TestUpstreamProxyDies(t *testing.T) {
	reaches(t, forwarderAt) // and nothing else, but for the control
	f := startForwarder(t, outer)
	d := launch(t, proxied(t, credentials))
	s := createFor(t, d, "--allow", "late.example.com") // a name that no daemon found absent before
	if said := s.try("http", "http://late.example.com/"); !strings.Contains(said, "200 I am "+elsewhere) {
		t.Fatalf("the control: %q", said)
	}
	f.stop()
	host.dns.set("late.example.com", public)
	t.Cleanup(func() { host.dns.forget("late.example.com") })
	t.Run("the control: without a proxy", func(t *testing.T) {
		reaches(t, "late.example.com:80")
		check(t, create(t, "--allow", "late.example.com"), []attempt{{"a name", []string{"http", "http://late.example.com/"}, "200 I am " + public}})
	})
	for range 2 {
		if said := s.try("http", "http://late.example.com/"); !strings.Contains(said, "502 SBX-709") || strings.Contains(said, "3128") {
			t.Errorf("with a dead proxy: %q", said)
		}
		var log string
		told := func() bool { // a connection has its record after the client has its answer
			log = d.Run(t, "policy", "log", "--json", s.id).Stdout
			return strings.Contains(log, "connect to the upstream proxy http://"+forwarderAt) && strings.Contains(log, "connection refused")
		}
		if !until(5*time.Second, told) {
			t.Errorf("the record does not say why: %s", log)
		}
		before := gateway(t, d)
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.await(t, 10*time.Second, "502 SBX-709", "http", "http://late.example.com/")
		if gateway(t, d) == before {
			t.Error("it is the same gateway")
		}
	}
	again := startForwarder(t, outer)
	s.await(t, 10*time.Second, "200 I am "+elsewhere, "http", "http://late.example.com/")
	if len(again.take()) == 0 {
		t.Error("it is reached by another way")
	}
}

// Who the proxy does not know is told so, and not by what it sent.
func TestUpstreamProxyKnowsNobody(t *testing.T) {
	reaches(t, forwarderAt)
	startForwarder(t, outer)
	d := launch(t, proxied(t, "agent:another-s3cret"))
	s := createFor(t, d, "--allow", "far.example.com")
	if said := s.try("http", "http://far.example.com/"); !strings.Contains(said, "502 SBX-708") || !strings.Contains(said, "407") || strings.Contains(said, "s3cret") {
		t.Errorf("%q", said)
	}
}

// air_gapped is over the proxy too.
func TestUpstreamProxyAirGapped(t *testing.T) {
	reaches(t, mirror+":80")
	f := startForwarder(t, outer)
	d := launch(t, "air_gapped: true\n"+proxied(t, credentials))
	d.Refused(t, "SBX-404", "run", "--json", "--allow", "far.example.com", "--", "true")
	d.Refused(t, "SBX-404", "run", "--json", "--network", "open", "--", "true")
	s := createFor(t, d, "--network", "allow")
	check(t, s, []attempt{
		{"a mapped name", []string{"http", "http://mirror.example/"}, "200 I am " + mirror},
		{"a name", []string{"http", "http://far.example.com/"}, "error:"},
	})
	if asked := f.take(); len(asked) > 0 {
		t.Errorf("the proxy was asked %q", asked)
	}
}
