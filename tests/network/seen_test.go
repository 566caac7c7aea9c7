package network

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

type entry struct {
	Kind, Type, Verdict, Name, Address, Rule, Code, Reason, Peer, Exec string
	Port                                                               int
	Sent                                                               int64 `json:"sent_bytes"`
	Received                                                           int64 `json:"received_bytes"`
	Duration                                                           harness.Duration
}

func traffic(t *testing.T, s sandbox) []entry {
	t.Helper()
	var list []entry
	d := json.NewDecoder(strings.NewReader(s.of.Run(t, "policy", "log", "--json", s.id).Stdout))
	for d.More() {
		var e entry
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// recorded waits until the records of s are complete, and returns those that there are in
// the end. A connection has its record when the gateway saw its end, after the client.
func (s sandbox) recorded(t *testing.T, complete func([]entry) bool) (list []entry) {
	t.Helper()
	until(5*time.Second, func() bool { list = traffic(t, s); return complete(list) })
	return list
}

// A result names what was refused by its address, with the option that would allow it.
func TestRefusedPrivate(t *testing.T) {
	asks(t, "inside.example")
	s := create(t, "--network", "open")
	var result struct {
		Refusals []struct {
			Name, Code, Needs string
			Port              int
		}
	}
	s.of.Try("exec", "--json", s.id, "--", "./client", "http", "http://inside.example/").JSONIn(t, "result", &result)
	if r := result.Refusals; len(r) != 1 || r[0].Name != "inside.example" || r[0].Port != 80 || r[0].Code != "SBX-702" || r[0].Needs != "inside.example:80,private" {
		t.Errorf("%+v", r)
	}
}

// Every attempt has a record, and the counters agree.
func TestSeen(t *testing.T) {
	reaches(t, "web.example:80", "db.example:5432")
	asks(t, "inside.example")
	s := create(t, "--network", "open", "--deny", "other.example")
	s.try("http", "http://web.example/a%20b?key=1")
	s.try("echo", "db.example:5432")
	s.try("http", "http://other.example/")
	s.try("http", "http://inside.example/")
	list := s.recorded(t, func(list []entry) bool {
		return slices.ContainsFunc(list, func(e entry) bool { return e.Kind == "connection" && e.Name == "inside.example" })
	})
	for _, want := range []entry{
		{Kind: "connection", Verdict: "allowed", Name: "web.example", Port: 80, Address: public},
		{Kind: "connection", Verdict: "allowed", Name: "db.example", Port: 5432, Address: public},
		{Kind: "lookup", Verdict: "refused", Name: "other.example", Code: "SBX-701"},
		{Kind: "connection", Verdict: "refused", Name: "inside.example", Port: 80, Code: "SBX-702"},
	} {
		if !slices.ContainsFunc(list, func(e entry) bool {
			return e.Kind == want.Kind && e.Verdict == want.Verdict && e.Name == want.Name && e.Port == want.Port && e.Code == want.Code &&
				(want.Address == "" || e.Address == want.Address)
		}) {
			t.Errorf("no %+v in %+v", want, list)
		}
	}
	if !slices.ContainsFunc(list, func(e entry) bool {
		return e.Kind == "request" && e.Name == "web.example" && e.Type == "GET /a b" && e.Rule == "mode open" && strings.HasPrefix(e.Reason, "status 200") && e.Received > 0
	}) {
		t.Errorf("no request in %+v", list)
	}
	var detail struct {
		Network string
		Egress  struct{ Allowed, Refused int64 }
	}
	daemon.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	if detail.Network != "open" || detail.Egress.Allowed != 2 || detail.Egress.Refused != 1 {
		t.Errorf("inspect: %+v", detail)
	}
	var counted struct {
		Networks []struct {
			ID      string `json:"sandbox_id"`
			Network string
			Egress  struct{ Allowed, Refused int64 }
		}
	}
	daemon.Run(t, "info", "--json").JSON(t, &counted)
	if n := counted.Networks; len(n) != 1 || n[0].ID != s.id || n[0].Network != "open" || n[0].Egress.Allowed != 2 || n[0].Egress.Refused != 1 {
		t.Errorf("stats: %+v", n)
	}
	rules := daemon.Run(t, "policy", "learn", s.id).Stdout
	if rules != "db.example:5432\nweb.example:80\n" {
		t.Errorf("learnt %q", rules)
	}
}

func TestPolicyQueries(t *testing.T) {
	reaches(t, "web.example:80")
	s := create(t, "--allow", "web.example")
	if r := daemon.Run(t, "policy", "check", "--sandbox", s.id, "https://web.example/x"); !strings.Contains(r.Stdout, "allowed: web.example port 443, by: allow web.example") {
		t.Errorf("%q", r.Stdout)
	}
	r := daemon.Try("policy", "check", "--sandbox", s.id, "other.example")
	if r.Code != 1 || !strings.Contains(r.Stdout, "SBX-701") || !strings.Contains(r.Stdout, "other.example:443") {
		t.Errorf("%d %q", r.Code, r.Stdout)
	}
	if r := daemon.Run(t, "policy", "explain", "--profile", "web"); !strings.Contains(r.Stdout, "bad.web.example") || !strings.Contains(r.Stdout, "mirror.example") {
		t.Errorf("%q", r.Stdout)
	}
	if r := daemon.Run(t, "run", "--profile", "web", "--workspace", clientDir(t)+":ro", "--", "/workspace/client", "http", "http://web.example/"); !strings.Contains(r.Stdout, "200") {
		t.Errorf("by the profile: %q", r.Stdout)
	}
	daemon.Refused(t, "SBX-404", "run", "--json", "--deny", "web.example", "--", "true")
	daemon.Refused(t, "SBX-403", "run", "--json", "--network", "bridge", "--", "true")
}
