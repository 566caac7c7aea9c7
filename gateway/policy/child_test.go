package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// One rule of a child beside those of its parent. It is kept as it is, or refused with the
// words.
func TestForChildCovers(t *testing.T) {
	const all = "a.test, *.b.test:443, 9.9.9.0/24:443, 2 more" // but not the one that the link hides
	parent := Spec{
		Mode:  Allow,
		Allow: []string{"a.test", "*.b.test:443", "9.9.9.0/24:443", "10.0.0.0/8:5432,private", "p.test:443,private", "db:5432,private"},
		Map:   map[string]string{"m.test": "10.0.0.1"}, Links: map[string]Link{"db": {Sandbox: "x", Port: 80}},
	}
	suffixes := Spec{Mode: Allow, Allow: []string{"*.amazonaws.com", "any.c.test", "9.9.8.0/24", "169.254.169.254:80,private", "169.254.0.0/15:80,private"}}
	opened := Spec{Mode: Open, Allow: []string{"nas.corp:443,private"}}
	opaque := Spec{Mode: Allow, Allow: []string{"*.a.test:443,opaque", "b.test", "c.test:443,private", "c.test:443,opaque"}, Map: map[string]string{"m.test": "10.0.0.1"}}
	for _, tt := range []struct {
		parent Spec
		rule   string
		says   string // empty: it is kept
	}{
		{parent, "a.test", ""},
		{parent, "A.test:80", ""},
		{parent, "a.test:22", "does not cover it"},
		{parent, "a.test:443+22", "does not cover port 22"},
		{parent, "a.test:443+22+23", "does not cover ports 22, 23"},
		{parent, "a.test,private", `does not cover the option "private"`},
		{parent, "www.a.test", "does not cover it"},
		{parent, "*.a.test", "does not cover it"},
		{parent, "x.b.test:443", ""},
		{parent, "y.x.b.test:443", ""},
		{parent, "*.b.test:443", ""},
		{parent, "*.x.b.test:443", ""},
		{parent, "x.b.test", "does not cover port 80"},
		{parent, "b.test:443", "does not cover it"},
		{parent, "9.9.9.9:443", ""},
		{parent, "9.9.9.0/25:443", ""},
		{parent, "9.9.8.0/23:443", "does not cover it"},
		{parent, "9.9.9.9:80", "does not cover it"},
		{parent, "10.1.0.0/16:5432,private", ""},
		{parent, "9.9.9.9:443,private", `does not cover the option "private"`},
		{parent, "p.test:443", ""},
		{parent, "p.test:443,private", ""},
		{parent, "m.test", ""},
		{parent, "m.test:443+5000", "does not cover port 5000"},
		{parent, "m.test:443,private", `does not cover the option "private"`},
		{parent, "db:5432,private", "a link of this name"},
		{parent, "a.test:0", "port"},
		{opaque, "x.a.test:443,opaque", ""},
		{opaque, "x.a.test:443", ""},
		{opaque, "*.x.a.test:443,opaque", ""},
		{opaque, "b.test,opaque", `does not cover the option "opaque"`},
		{opaque, "m.test:443,opaque", `does not cover the option "opaque"`},
		{opaque, "c.test:443,private,opaque", `does not cover the option "private"`}, // no rule has both
		{opened, "any.test:443,opaque", `does not cover the option "opaque"`},
		{suffixes, "x.amazonaws.com", ""},
		{suffixes, "x.s3.amazonaws.com", "does not cover it"},
		{suffixes, "*.s3.amazonaws.com", "covers a public suffix"},
		{suffixes, "*.x.s3.amazonaws.com", "does not cover it"},
		{suffixes, "169.254.169.254:80,private", ""},
		{suffixes, "169.254.1.1:80,private", "does not cover"}, // each must be spelled
		{suffixes, "*.c.test", "does not cover it"},
		{suffixes, "9.9.8.0/23", "does not cover it"},
		{opened, "github.com:22", ""},
		{opened, "*.example.com:22", ""},
		{opened, "github.com:22,private", `does not cover the option "private"`},
		{opened, "9.9.9.9:443", "does not cover it"},
		{opened, "nas.corp:443,private", ""},
		{opened, "*.corp:443,private", `does not cover the option "private"`},
	} {
		child, err := tt.parent.ForChild([]string{tt.rule}, nil, nil)
		mustCompile(t, child)
		if tt.says == "" {
			if err != nil || !slices.Equal(child.Allow, []string{tt.rule}) {
				t.Errorf("%s: %q, %v", tt.rule, child.Allow, err)
			}
			continue
		}
		if sbxerr.Of(err) != sbxerr.NetChild || !strings.Contains(err.Error(), tt.rule) || !strings.Contains(err.Error(), tt.says) || len(child.Allow) > 0 {
			t.Errorf("%s: %q, %v; want %q", tt.rule, child.Allow, err, tt.says)
		}
	}
	_, err := parent.ForChild([]string{"c.test"}, nil, nil)
	if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, all) || !strings.Contains(remedy, "mapped names") {
		t.Errorf("remedy %q", remedy)
	}
	_, err = opened.ForChild([]string{"9.9.9.9:1"}, nil, nil)
	if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "nas.corp:443,private, public names") {
		t.Errorf("remedy %q", remedy)
	}
	_, err = Spec{Mode: Allow}.ForChild([]string{"a.test"}, nil, nil)
	if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "the parent may reach nothing") {
		t.Errorf("remedy %q", remedy)
	}
}

// A child without rules has its parent's, but for names that a link of the parent hides. An
// empty list allows nothing.
func TestForChildInherits(t *testing.T) {
	resolver := netip.MustParseAddrPort("192.0.2.53:53")
	parent := Spec{
		Mode: Open, Allow: []string{"a.test:22", "db:1,private", "10.0.0.0/8:1,private"}, Deny: []string{"c.test"}, Map: map[string]string{"m.test": "10.0.0.1"},
		Links: map[string]Link{"db": {Sandbox: "x", Port: 80}}, AllowECH: true, Site: true, Resolvers: []netip.AddrPort{resolver},
	}
	child, err := parent.ForChild(nil, []string{"d.test"}, nil)
	if err != nil || child.Mode != Allow || !slices.Equal(child.Allow, []string{"a.test:22", "10.0.0.0/8:1,private"}) || !slices.Equal(child.Deny, []string{"c.test", "d.test"}) {
		t.Errorf("%+v, %v", child, err)
	}
	if child.Map["m.test"] != "10.0.0.1" || child.Links != nil || !child.AllowECH || child.Site || !slices.Equal(child.Resolvers, parent.Resolvers) {
		t.Errorf("%+v", child)
	}
	if child, err = parent.ForChild([]string{}, nil, nil); err != nil || len(child.Allow) > 0 || child.Mode != Allow {
		t.Errorf("no rule on purpose: %+v, %v", child, err)
	}
	if child, err = parent.ForChild([]string{"z.invalid:1,private"}, nil, nil); err == nil || len(child.Allow) > 0 {
		t.Errorf("with no rule left: %+v, %v", child, err)
	}
	parent = Spec{Mode: Allow, AirGapped: true, Allow: []string{"m.test:5000"}, Map: map[string]string{"m.test": "10.0.0.1"}}
	if child, err = parent.ForChild([]string{"m.test:5000"}, nil, nil); err != nil || !child.AirGapped || mustCompile(t, child).Mode() != Allow {
		t.Errorf("air-gapped: %+v, %v", child, err)
	}
	for _, s := range []Spec{{}, {Mode: None}} {
		child, err := s.ForChild(nil, nil, nil)
		if sbxerr.Of(err) != sbxerr.NetChild || child.Mode != "" || !strings.Contains(err.Error(), `mode "none"`) {
			t.Errorf("of none: %+v, %v", child, err)
		}
	}
	if _, err := (Spec{Mode: Allow, Allow: []string{"*"}}).ForChild(nil, nil, nil); sbxerr.Of(err) != sbxerr.NetPolicy {
		t.Errorf("of a parent without a policy: %v", err)
	}
}

// The vocabulary of random policies: names and addresses that meet each rule of the
// package, and each other.
var (
	someNames = []string{
		"a.test", "b.a.test", "c.b.a.test", "other.test", "db", "nas.corp", "x.nas.corp", "m.test", "x.m.test", "x.co.uk", "y.x.co.uk",
		"github.io", "me.github.io", "x.me.github.io", "amazonaws.com", "ec2.amazonaws.com", "s3.amazonaws.com", "x.s3.amazonaws.com", "www.ck", "x.www.ck", "y.ck", "x.y.ck",
	}
	somePrefixes  = []string{"9.9.9.9", "9.9.9.0/24", "9.9.8.0/24", "9.9.8.0/23", "10.0.0.1", "10.0.0.0/8", "169.254.169.254", "169.254.0.0/15", "100.100.100.200", "100.100.100.0/24", "8.0.0.0/5", "127.0.0.1", "[fd00::1]", "[2620:fe::/48]"}
	someAddresses = []string{"9.9.9.9", "9.9.8.8", "10.0.0.1", "10.1.1.1", "169.254.169.254", "169.254.1.1", "100.100.100.200", "100.100.100.1", "127.0.0.1", "fd00::1", "2620:fe::fe", "64:ff9b::a00:1", "0.0.0.0"}
	somePorts     = []uint16{22, 80, 443, 5432}
)

// randomRules are rules of the action that may be written.
func randomRules(r *rand.Rand, action Action, most int) (rules []string) {
	for range r.IntN(most + 1) {
		host := someNames[r.IntN(len(someNames))]
		switch r.IntN(4) {
		case 0:
			host = somePrefixes[r.IntN(len(somePrefixes))]
		case 1:
			host = "*." + host
		}
		for i := range r.IntN(3) {
			host += fmt.Sprintf("%c%d", ":+"[min(i, 1)], somePorts[r.IntN(len(somePorts))])
		}
		if r.IntN(3) == 0 {
			host += ",private"
		}
		if _, err := ParseRule(action, host); err == nil {
			rules = append(rules, host)
		}
	}
	return rules
}

func randomParent(r *rand.Rand) Spec {
	s := Spec{Mode: []Mode{Allow, Allow, Open}[r.IntN(3)], Allow: randomRules(r, ActAllow, 8), Deny: randomRules(r, ActDeny, 3), AllowECH: r.IntN(3) == 0, Site: r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		s.Map = map[string]string{"m.test": []string{"10.0.0.1", "10.0.0.1:5432", "9.9.9.9"}[r.IntN(3)]}
	}
	if r.IntN(2) == 0 {
		s.Links = map[string]Link{"db": {Sandbox: "x", Port: somePorts[r.IntN(len(somePorts))]}}
	}
	s.AirGapped = r.IntN(8) == 0
	kept, _ := s.Kept() // leaves refused rules out
	if _, err := Compile(kept); err != nil {
		kept.AirGapped = false
	}
	return kept
}

// local has one public address that is the host's own.
func local(a netip.Addr) (bool, error) { return a == netip.MustParseAddr("9.9.8.8"), nil }

// allows lists all that p allows of the vocabulary, in the words of the question.
func allows(p *Policy) map[string]bool {
	p = p.On(local)
	list := map[string]bool{}
	note := func(d Decision, question string, args ...any) {
		if d.Allowed {
			list[fmt.Sprintf(question, args...)] = true
		}
	}
	for _, n := range someNames {
		name := Name(n)
		note(p.DecideLookup(name), "look up %s", n)
		for _, port := range somePorts {
			note(p.Decide(name, port), "%s:%d", n, port)
			note(p.DecideECH(name, port), "ECH to %s:%d", n, port)
			note(p.DecideAliases("z.test", []Name{name}, port), "an alias of %s:%d", n, port)
			for _, a := range someAddresses {
				note(p.DecideResolved(name, port, netip.MustParseAddr(a)), "%s:%d at %s", n, port, a)
			}
		}
	}
	for _, a := range someAddresses {
		for _, port := range somePorts {
			note(p.DecideAddress(netip.MustParseAddr(a), port), "%s port %d", a, port)
		}
	}
	return list
}

// tally tells whether random policies prove anything.
type tally struct{ kept, refused, allowed, same int }

// checkChildren makes a random parent, a child and a grandchild, and looks whether one may
// do something that the one above may not.
func checkChildren(t *testing.T, seed uint64, n *tally) {
	r := rand.New(rand.NewPCG(seed, 0))
	above := randomParent(r)
	for generation := range 2 {
		var asked []string
		if r.IntN(3) > 0 {
			asked = append(randomRules(r, ActAllow, 8), above.Allow[:r.IntN(len(above.Allow)+1)]...)
		}
		child, err := above.ForChild(asked, randomRules(r, ActDeny, 1), nil)
		if child.Mode != Allow {
			t.Fatalf("seed %d: %v", seed, err)
		}
		may, childMay := allows(mustCompile(t, above)), allows(mustCompile(t, child))
		for what := range childMay {
			if !may[what] {
				t.Errorf("seed %d, generation %d: %s\nparent %+v\nchild %+v", seed, generation, what, above, child)
			}
		}
		n.kept, n.refused, n.allowed = n.kept+len(child.Allow), n.refused+len(asked)-min(len(asked), len(child.Allow)), n.allowed+len(childMay)
		whole, err := above.ForChild(nil, nil, nil)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if above.Mode == Allow && above.Links == nil { // nothing of it is lost
			n.same++
			if got := allows(mustCompile(t, whole)); len(got) != len(may) {
				t.Errorf("seed %d: a child without rules of its own may do %d of %d things", seed, len(got), len(may))
			}
		}
		above = child
	}
}

// A child, and a child of that, never may do what its parent may not.
func TestForChildIsNoMore(t *testing.T) {
	var n tally
	for seed := range uint64(400) {
		if checkChildren(t, seed, &n); t.Failed() {
			return
		}
	}
	if n.kept < 300 || n.refused < 300 || n.allowed < 10_000 || n.same < 50 {
		t.Errorf("the policies prove little: %+v", n)
	}
	t.Logf("%+v", n)
}

func FuzzForChild(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkChildren(t, seed, &tally{}) })
}
