package network

import (
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ownName and ownNameV6 lead to public addresses that are the host's own.
const (
	ownName   = "own.example"
	ownNameV6 = "own6.example"
)

// ownNames makes them known while t lasts, and lets the gateway ask for them.
func ownNames(t *testing.T) {
	t.Helper()
	host.dns.set(ownName, own)
	host.dns.set(ownNameV6, ownV6)
	host.dns.set("below."+ownName, own)
	t.Cleanup(func() { host.dns.forget(ownName, ownNameV6, "below."+ownName) })
	asks(t, ownName, ownNameV6, "below."+ownName)
}

// neighbourPort is a port that a sandbox publishes on all addresses of the host.
func neighbourPort(t *testing.T) string {
	t.Helper()
	s := create(t, "-p", "0.0.0.0:0:"+insidePort)
	s.serve(t)
	return strconv.Itoa(int(netip.MustParseAddrPort(s.port(t)).Port()))
}

// The host's own public addresses lead to its services, and to what neighbours publish:
// no name, no rule and no mode leads there, but for a rule that says private.
//
//caisson:kernel
func TestHostIsRefused(t *testing.T) {
	ownNames(t)
	port := neighbourPort(t)
	client := filepath.Join(clientDir(t), "client")
	for _, args := range [][]string{
		{"http", "http://" + own + "/"}, {"http", "http://" + uplink + "/"}, {"tls", own + ":443", ownName}, {"echo", own + ":5432"}, {"echo", "[" + ownV6 + "]:5432"}, {"echo", own + ":" + port},
	} {
		if said := host.far.try(client, args...); strings.Contains(said, "error:") {
			t.Fatalf("the control: %q: %q", args, said)
		}
	}
	reaches(t, "web.example:80") // and of the host nothing
	rules := []string{"--allow", "web.example", "--allow", "*." + ownName, "--allow", "93.184.216.0/24:80+" + port}
	for _, name := range []string{ownName, ownNameV6} {
		rules = append(rules, "--allow", name+":80+443+5432+"+port)
	}
	closed := create(t, rules...)
	open := create(t, "--network", "open")
	for _, tt := range []struct {
		mode      string
		s         sandbox
		byAddress string // in the mode open no address is led to the gateway
	}{{"allow", closed, "SBX-701"}, {"open", open, "refused"}} {
		t.Run(tt.mode, func(t *testing.T) {
			check(t, tt.s, []attempt{
				{"what is public", []string{"http", "http://web.example/"}, "200 I am " + public},
				{"by name", []string{"http", "http://" + ownName + "/"}, "SBX-702"},
				{"by name, IPv6", []string{"http", "http://" + ownNameV6 + "/"}, "SBX-702"},
				{"by a name below it", []string{"http", "http://below." + ownName + "/"}, "SBX-702"},
				{"TLS", []string{"tls", ownName + ":443", ownName}, "error:"},
				{"any protocol", []string{"echo", ownName + ":5432"}, "error:"},
				{"any protocol, IPv6", []string{"echo", ownNameV6 + ":5432"}, "error:"},
				{"a neighbour's port", []string{"echo", ownName + ":" + port}, "error:"},
				{"by its address", []string{"http", "http://" + own + "/"}, tt.byAddress},
				{"a neighbour's port by its address", []string{"echo", own + ":" + port}, "error:"},
			})
		})
	}
	check(t, closed, []attempt{{"it is told why", []string{"http", "http://" + own + "/"}, "the host's own"}, {"and what would do", []string{"http", "http://" + ownName + "/"}, ownName + ":80,private"}})
	if r := daemon.Try("policy", "check", "--sandbox", closed.id, own+":80"); r.Code != 1 || !strings.Contains(r.Stdout, own+":80,private") {
		t.Errorf("check: %d, %q", r.Code, r.Stdout)
	}
}

// A rule that says private leads there, and so does the operator's map.
func TestHostByPrivate(t *testing.T) {
	ownNames(t)
	reaches(t, own+":80", own+":5432", "["+ownV6+"]:5432")
	s := create(t, "--allow", ownName+":80,private", "--allow", ownNameV6+":5432,private", "--allow", own+":5432,private")
	check(t, s, []attempt{
		{"by name", []string{"http", "http://" + ownName + "/"}, "200 I am " + own},
		{"by name, IPv6", []string{"echo", ownNameV6 + ":5432"}, "echo ping"},
		{"by its address", []string{"echo", own + ":5432"}, "echo ping"},
	})
	const want = own + ":5432,private\n" + ownName + ":80,private\n" + ownNameV6 + ":5432,private\n"
	var rules string
	if !until(5*time.Second, func() bool { rules = daemon.Run(t, "policy", "learn", s.id).Stdout; return rules == want }) {
		t.Errorf("learnt %q, want %q", rules, want)
	}
	d := launch(t, "network: {dns: ["+resolver+"], map: {mapped.example: \""+own+":80\"}}\n")
	check(t, createFor(t, d, "--network", "allow"), []attempt{{"a mapped name", []string{"http", "http://mapped.example/"}, "200 I am " + own}})
}

// An address that the host gets later is the host's from then on.
func TestHostGetsAddress(t *testing.T) {
	const late = "93.184.216.7"
	host.dns.set("late.example", late)
	t.Cleanup(func() { host.dns.forget("late.example") })
	reaches(t, "late.example:80")
	host.far.run(t, "ip addr add "+late+" dev lo")
	t.Cleanup(func() { host.far.run(t, "ip addr del "+late+"/32 dev lo") })
	l, err := host.far.listenSoon(late + ":80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go http.Serve(l, greeter()) // it ends with its listener
	s := create(t, "--allow", "late.example")
	if said := s.try("http", "http://late.example/"); !strings.Contains(said, "200 I am "+late) {
		t.Errorf("before: %q", said)
	}
	host.run(t, "ip addr add "+late+" dev lo")
	t.Cleanup(func() { host.run(t, "ip addr del "+late+"/32 dev lo") })
	if said := outside(t, "http", "http://"+late+"/"); !strings.Contains(said, "200 I am "+late) {
		t.Fatalf("the control: %q", said)
	}
	if said := s.try("http", "http://late.example/"); !strings.Contains(said, "SBX-702") {
		t.Errorf("after: %q", said)
	}
}
