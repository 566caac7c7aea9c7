package network

import (
	"strings"
	"testing"
)

// A hello that may hide its name does not get out where a rule depends on the name, and
// does by word.
func TestECH(t *testing.T) {
	reaches(t, "web.example:443")
	const answered = "the server answered without ECH"
	if said := outside(t, "ech", public+":443", "web.example", "other.example"); said != answered {
		t.Fatalf("the control: %q", said)
	}
	hidden := []string{"ech", "web.example:443", "web.example", "other.example"}
	s := create(t, "--allow", "web.example")
	check(t, s, []attempt{
		{"refused", hidden, "error: remote error: tls: access denied"},
		{"without ECH", []string{"tls", "web.example:443", "web.example"}, "I am " + public},
	})
	said := daemon.Run(t, "policy", "log", s.id).Stdout
	for _, want := range []string{"SBX-710", "encrypted_client_hello", "allow web.example:80+443"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log lacks %q:\n%s", want, said)
		}
	}
	for name, flags := range map[string][]string{
		"by word":          {"--allow", "web.example", "--allow-ech"},
		"nothing by name":  {"--network", "open"},
		"denied addresses": {"--network", "open", "--deny", elsewhere},
	} {
		check(t, create(t, flags...), []attempt{{name, hidden, answered}})
	}
	check(t, create(t, "--network", "open", "--deny", "other.example"), []attempt{{"a denied name", hidden, "access denied"}})

	var detail struct {
		AllowECH bool `json:"allow_ech"`
	}
	daemon.Run(t, "inspect", create(t, "--allow", "web.example", "--allow-ech").id).JSONIn(t, "sandbox", &detail)
	if !detail.AllowECH {
		t.Error("inspect does not say that ECH is allowed")
	}
	if said := daemon.Run(t, "spec", "--allow", "web.example", "--allow-ech", "--", "true").Stdout; !strings.Contains(said, "allow-ech") {
		t.Errorf("spec does not say that ECH is allowed:\n%s", said)
	}
}
