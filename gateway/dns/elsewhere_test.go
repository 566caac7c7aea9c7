package dns

import (
	"fmt"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

// A name that somebody else resolves has an address without a question to anybody. Other
// names are as they are, and the policy decides on all.
func TestElsewhere(t *testing.T) {
	b := start(t, policy.Spec{Mode: policy.Allow, Allow: []string{"far.test", "absent.test", "a.test"}}, func(c *Config) {
		c.Elsewhere = func(p *policy.Policy, name policy.Name) bool {
			return p != nil && (name == "far.test" || name == "secret.test")
		}
	})
	for name, want := range map[string]lookup.Verdict{"far.test": lookup.Answered, "secret.test": lookup.Refused, "absent.test": lookup.Absent, "a.test": lookup.Answered} {
		before := len(b.zone.questions())
		r := b.ask(t, "udp", question(name+".", miekg.TypeA))
		if got := b.seen.last(); got.Verdict != want || got.Name != name || (want == lookup.Answered) != (len(r.Answer) == 1) {
			t.Errorf("%s: %+v", name, got)
		}
		asked := len(b.zone.questions()) > before
		if resolvedHere := name == "absent.test" || name == "a.test"; asked != resolvedHere {
			t.Errorf("%s: asked for here: %t", name, asked)
		}
	}
}

// They are as many as others: what resolves them may be a tunnel too.
func TestElsewhereIsBounded(t *testing.T) {
	b := start(t, policy.Spec{Mode: policy.Allow, Allow: []string{"*.far.example"}}, func(c *Config) {
		c.Elsewhere = func(*policy.Policy, policy.Name) bool { return true }
		c.Limits.NewPerSecond, c.Limits.NewBurst = 1, 3
	})
	for i := range 4 {
		b.ask(t, "udp", question(fmt.Sprintf("h%d.far.example.", i), miekg.TypeA))
		if got, want := b.seen.last(), i < 3; (got.Verdict == lookup.Answered) != want {
			t.Errorf("name %d: %+v", i, got)
		}
	}
	if b.ask(t, "udp", question("h0.far.example.", miekg.TypeA)); b.seen.last().Verdict != lookup.Answered {
		t.Errorf("one that has its address: %+v", b.seen.last())
	}
}
