package network

import (
	"strings"
	"testing"
)

// shell is an address of the world with another protocol than TLS on port 443, as
// ssh.github.com has.
const shell = "93.184.215.44"

// A name with another protocol on port 443 is reached by a rule that says so, which the
// refusal without it proposes, learning finds, and a child has from its parent alone.
func TestOpaque(t *testing.T) {
	host.far.run(t, "ip addr add "+shell+"/32 dev lo")
	t.Cleanup(func() { host.far.run(t, "ip addr del "+shell+"/32 dev lo") })
	l, err := host.far.listen(shell + ":443")
	if err != nil {
		t.Fatal(err)
	}
	go echoAll(l)
	host.dns.set("ssh.example", shell)
	t.Cleanup(func() { host.dns.forget("ssh.example") })
	reaches(t, "ssh.example:443")
	attempt := []string{"echo", "ssh.example:443"}
	const rule = "ssh.example:443,opaque"

	s := create(t, "--allow", "ssh.example")
	if said := s.try(attempt...); !strings.Contains(said, "error:") {
		t.Errorf("without the word: %q", said)
	}
	log := daemon.Run(t, "policy", "log", s.id).Stdout
	if !strings.Contains(log, "SBX-703") || !strings.Contains(log, rule) {
		t.Errorf("the log does not propose %s:\n%s", rule, log)
	}
	daemon.Run(t, "update", "--allow", rule, s.id)
	if said := s.try(attempt...); !strings.Contains(said, "echo ping") {
		t.Errorf("with the word: %q", said)
	}
	if r := daemon.Run(t, "policy", "check", "--sandbox", s.id, "ssh.example:443"); !strings.Contains(r.Stdout, "by: allow "+rule) {
		t.Errorf("check: %s", r.Stdout)
	}
	if r := daemon.Run(t, "policy", "explain", s.id); !strings.Contains(r.Stdout, "unread on ports 80 and 443") {
		t.Errorf("explain: %s", r.Stdout)
	}
	r := learn(t, "cd /workspace; ./client echo ssh.example:443", "--allow", rule)
	if !strings.HasSuffix(r.Stderr, "it would have sufficed to allow:\n"+rule+"\n") {
		t.Errorf("learnt: %q, %q", r.Stdout, r.Stderr)
	}
	for bad, word := range map[string]string{"ssh.example:22,opaque": "other ports are not read", "192.0.2.1:443,opaque": "addresses are not read"} {
		f := daemon.Refused(t, "SBX-404", "create", "--json", "--allow", bad)
		if said := f.Error.Message + f.Error.Cause; !strings.Contains(said, word) {
			t.Errorf("%s: %+v", bad, f.Error)
		}
	}
}
