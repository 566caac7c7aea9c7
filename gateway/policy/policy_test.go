package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func mustCompile(t testing.TB, s Spec) *Policy {
	t.Helper()
	p, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCompileRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		s    Spec
		code sbxerr.Code
		want []string // all must be in the one error
	}{
		"all reasons at once": {
			Spec{Mode: Allow, Allow: []string{"*", "a:0"}, Deny: []string{"b,private"}, Map: map[string]string{"c.test": "d.test"}},
			sbxerr.NetPolicy, []string{`"*"`, `"a:0"`, `"b,private"`, `"c.test"`, "names are not resolved here"},
		},
		"unknown mode":    {Spec{Mode: "bridge"}, sbxerr.NetworkMode, []string{`"bridge"`}},
		"rules in none":   {Spec{Mode: None, Allow: []string{"A.test", "b.test", "c.test", "d.test"}}, sbxerr.NetPolicy, []string{`"none" has no rules`, `allow rule "A.test", allow rule "b.test", allow rule "c.test", 1 more`}},
		"denials in none": {Spec{Deny: []string{"a.test:443"}}, sbxerr.NetPolicy, []string{`"none" has no rules`, `deny rule "a.test:443"`}},
		"map in none":     {Spec{Map: map[string]string{"a.test": "10.0.0.1"}}, sbxerr.NetPolicy, []string{`"none" has no rules`}},
		"too many":        {Spec{Mode: Allow, Allow: make([]string, 4097)}, sbxerr.NetPolicy, []string{"4097 rules that allow"}},
		"mapped twice":    {Spec{Mode: Allow, Map: map[string]string{"a.test": "10.0.0.1", "A.test": "10.0.0.2"}}, sbxerr.NetPolicy, []string{"mapped twice"}},
		"air gap": {
			Spec{Mode: Open, AirGapped: true, Allow: []string{"a.test", "*.m.test"}, Map: map[string]string{"m.test": "9.9.9.9"}},
			sbxerr.NetPolicy, []string{`mode "open" is refused`, `"a.test:80+443" is refused`, `"*.m.test:80+443" is refused`, "9.9.9.9, which is public"},
		},
	} {
		p, err := Compile(tc.s)
		if p != nil || sbxerr.Of(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %s", name, err, want)
			}
		}
	}
}

func TestParseMap(t *testing.T) {
	for target, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:443", "10.0.0.1:8443": "10.0.0.1:8443", "9.9.9.9": "9.9.9.9:443",
		"[fd00::3]:8443": "[fd00::3]:8443", "[fd00::3]": "[fd00::3]:443", "fd00::3": "[fd00::3]:443", "127.0.0.1:1": "127.0.0.1:1",
	} {
		p, err := Compile(Spec{Mode: Allow, Map: map[string]string{"PyPI.org": target}})
		if err != nil {
			t.Errorf("%q: %v", target, err)
			continue
		}
		if got, ok := p.Mapped("pypi.org", 443); !ok || got.String() != want {
			t.Errorf("%q: %v, want %s", target, got, want)
		}
	}
	for target, want := range map[string]string{
		"": "is not ADDRESS", "mirror.corp": "not resolved", "10.0.0.1:": "is not ADDRESS", "10.0.0.1:0": `port "0" is not`, "10.0.0.1:70000": `port "70000" is not`, "[2001:db8::1]:x": `port "x" is not`,
		"10.0.0.0/8": "is not ADDRESS", "0.0.0.0": "no mirror", "224.0.0.1:80": "no mirror", "169.254.169.254": "cloud metadata",
		"198.18.0.9": "no mirror", "::ffff:10.0.0.1": "write the IPv4 address as 10.0.0.1", "fe80::1%eth0": "no mirror",
	} {
		_, err := Compile(Spec{Mode: Allow, Map: map[string]string{"pypi.org": target}})
		if sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), want) || !strings.Contains(sbxerr.RemedyOf(err), "pypi.org: 10.1.2.3") {
			t.Errorf("%q: %v; want %q", target, err, want)
		}
	}
	if _, err := Compile(Spec{Mode: Allow, Map: map[string]string{"*.org": "10.0.0.1"}}); err == nil || !strings.Contains(err.Error(), "the name holds a *") {
		t.Errorf("a wildcard was mapped: %v", err)
	}
	if _, ok := (*Policy)(nil).Mapped("a.test", 1); ok {
		t.Error("no policy maps a name")
	}
}

var rich = Spec{
	Mode: Allow,
	Allow: []string{
		"example.com", "api.example.com:8443", "*.example.com:443", "db.corp:5432,private", "*.corp.example:22,private", "a.corp.example:22", "files.test:80+81",
		"9.9.9.0/24:53", "10.1.0.0/16:5432,private", "169.254.169.254:80,private", "100.100.0.0/16:80,private",
	},
	Deny: []string{"bad.example.com", "half.example.com:443", "9.9.9.8", "9.9.9.7:53", "10.1.1.1", "[2a00:1::/32]"},
	Map:  map[string]string{"pypi.org": "10.9.9.9:8443", "files.test": "10.9.9.8", "denied.test": "10.1.1.1", "bad.example.com": "10.9.9.7"},
}

func TestDecide(t *testing.T) {
	p := mustCompile(t, rich)
	for _, tc := range []struct {
		name  Name
		port  uint16
		allow bool
		rule  string
	}{
		{"example.com", 80, true, "allow example.com:80+443"},
		{"example.com", 443, true, "allow example.com:80+443"},
		{"example.com", 22, false, "mode allow"},
		{"example.com", 0, false, "mode allow"},
		{"", 443, false, "mode allow"},
		{"evilexample.com", 443, false, "mode allow"},
		{"example.com.evil.test", 443, false, "mode allow"},
		{"www.example.com", 443, true, "allow *.example.com:443"},
		{"a.b.example.com", 443, true, "allow *.example.com:443"},
		{"www.example.com", 80, false, "mode allow"},
		{"api.example.com", 8443, true, "allow api.example.com:8443"},
		{"api.example.com", 443, true, "allow *.example.com:443"},
		{"bad.example.com", 443, false, "deny bad.example.com"},
		{"bad.example.com", 1, false, "deny bad.example.com"},
		{"x.bad.example.com", 443, true, "allow *.example.com:443"},
		{"half.example.com", 443, false, "deny half.example.com:443"},
		{"a.corp.example", 22, true, "allow *.corp.example:22,private"},
		{"pypi.org", 443, true, "map pypi.org=10.9.9.9:8443"},
		{"files.test", 80, true, "map files.test=10.9.9.8"},
		{"files.test", 81, true, "allow files.test:80+81"},
		{"pypi.org", 81, false, "mode allow"},
	} {
		d := p.Decide(tc.name, tc.port)
		if d.Allowed != tc.allow || d.Rule != tc.rule {
			t.Errorf("%s:%d: %+v, want %v by %q", tc.name, tc.port, d, tc.allow, tc.rule)
		}
		checkRefusal(t, rich, d, func(p *Policy) Decision { return p.Decide(tc.name, tc.port) })
	}
}

// Whoever owns a name does not own what a public suffix below parts from it.
func TestDecideBelowPublicSuffix(t *testing.T) {
	s := Spec{Mode: Allow, Allow: []string{"*.amazonaws.com:443", "*.mine.s3.amazonaws.com:443"}}
	p := mustCompile(t, s)
	for name, suffix := range map[Name]string{
		"dynamodb.us-west-2.amazonaws.com": "", "compute.amazonaws.com": "", "a.mine.s3.amazonaws.com": "",
		"s3.amazonaws.com": "s3.amazonaws.com", "evil.s3.amazonaws.com": "s3.amazonaws.com",
		"ec2-1-2-3-4.us-east-1.compute.amazonaws.com": "us-east-1.compute.amazonaws.com",
	} {
		d := p.Decide(name, 443)
		if d.Allowed != (suffix == "") || !strings.Contains(d.Reason, suffix) {
			t.Errorf("%s: %+v", name, d)
		}
		if suffix != "" && (d.Rule != "mode allow" || !strings.Contains(d.Reason, "*.amazonaws.com:443 is not about it") || d.Needs != string(name)+":443") {
			t.Errorf("%s: %+v does not say what is wrong", name, d)
		}
		if l := p.DecideLookup(name); l.Allowed != d.Allowed {
			t.Errorf("look up %s: %+v", name, l)
		}
		checkRefusal(t, s, d, func(p *Policy) Decision { return p.Decide(name, 443) })
	}
	if d := p.Decide("evil.s3.amazonaws.com", 80); strings.Contains(d.Reason, "not about it") {
		t.Errorf("on a port that the rule is not for: %+v", d)
	}
	s.Allow, s.Deny = []string{"evil.s3.amazonaws.com"}, []string{"*.amazonaws.com"}
	if d := mustCompile(t, s).Decide("evil.s3.amazonaws.com", 443); d.Rule != "deny *.amazonaws.com" {
		t.Errorf("a wildcard that denies: %+v", d)
	}
}

// checkRefusal adds the rule that a refusal says is needed, and expects that it
// is enough.
func checkRefusal(t *testing.T, s Spec, d Decision, again func(*Policy) Decision) {
	t.Helper()
	if d.Allowed {
		if d.Err() != nil || d.Reason+d.Remedy+d.Needs+string(d.Code) != "" {
			t.Errorf("an allowed decision explains a refusal: %+v", d)
		}
		return
	}
	if d.Code == "" || d.Reason == "" || d.Remedy == "" || d.Rule == "" {
		t.Errorf("a refusal lacks something: %+v", d)
	}
	if err := d.Err(); !errors.Is(err, d.Code) || !strings.Contains(err.Error(), d.Rule) || sbxerr.RemedyOf(err) != d.Remedy {
		t.Errorf("%v does not tell of %+v", err, d)
	}
	if d.Needs == "" {
		return
	}
	if !strings.Contains(d.Remedy, d.Needs) {
		t.Errorf("remedy %q does not name %q", d.Remedy, d.Needs)
	}
	if s.Mode == "" || s.Mode == None {
		s.Mode = Allow
	}
	s.Allow = append(append([]string(nil), s.Allow...), d.Needs)
	if now := again(mustCompile(t, s)); !now.Allowed {
		t.Errorf("rule %q was said to help, but then %+v", d.Needs, now)
	}
}

func TestDecideResolved(t *testing.T) {
	p := mustCompile(t, rich)
	for _, tc := range []struct {
		name Name
		port uint16
		addr string
		code sbxerr.Code // empty is allowed
		rule string
	}{
		{"example.com", 443, "9.9.9.1", "", "allow example.com:80+443"},
		{"example.com", 443, "2a00::1", "", "allow example.com:80+443"},
		{"example.com", 443, "2a00:1::1", sbxerr.EgressDenied, "deny [2a00:1::/32]"},
		{"example.com", 22, "9.9.9.1", sbxerr.EgressDenied, "mode allow"},
		{"example.com", 443, "127.0.0.1", sbxerr.EgressAddress, "allow example.com:80+443"},
		{"example.com", 443, "10.2.0.1", sbxerr.EgressAddress, "allow example.com:80+443"},
		{"example.com", 443, "0.0.0.0", sbxerr.EgressAddress, "allow example.com:80+443"},
		{"example.com", 443, "::ffff:127.0.0.1", sbxerr.EgressAddress, "allow example.com:80+443"},
		{"example.com", 443, "64:ff9b::a9fe:a9fe", sbxerr.EgressAddress, "allow example.com:80+443"},
		{"example.com", 443, "::ffff:169.254.169.254", sbxerr.EgressAddress, "allow example.com:80+443"},
		{"example.com", 443, "169.254.170.2", sbxerr.EgressAddress, "allow example.com:80+443"},
		{"example.com", 80, "169.254.169.254", "", "allow 169.254.169.254:80,private"}, // reached without a name, too
		{"example.com", 443, "9.9.9.8", sbxerr.EgressDenied, "deny 9.9.9.8"},
		{"example.com", 443, "::ffff:9.9.9.8", sbxerr.EgressDenied, "deny 9.9.9.8"},
		{"example.com", 443, "64:ff9b::9.9.9.8", sbxerr.EgressDenied, "deny 9.9.9.8"},
		{"example.com", 443, "9.9.9.7", "", "allow example.com:80+443"}, // denied on port 53 only
		{"db.corp", 5432, "10.1.0.1", "", "allow db.corp:5432,private"},
		{"db.corp", 5432, "127.0.0.1", "", "allow db.corp:5432,private"},
		{"db.corp", 5432, "fd00::1", "", "allow db.corp:5432,private"},
		{"db.corp", 5432, "10.1.1.1", sbxerr.EgressDenied, "deny 10.1.1.1"},
		{"db.corp", 5432, "169.254.169.254", sbxerr.EgressAddress, "allow db.corp:5432,private"},
		{"db.corp", 5432, "169.254.42.42", sbxerr.EgressAddress, "allow db.corp:5432,private"}, // Scaleway's metadata
		{"db.corp", 5432, "fe80::1", sbxerr.EgressAddress, "allow db.corp:5432,private"},
		{"db.corp", 5432, "fd00:ec2::254", sbxerr.EgressAddress, "allow db.corp:5432,private"},
		{"db.corp", 5432, "0.0.0.0", sbxerr.EgressAddress, "allow db.corp:5432,private"},
		{"db.corp", 5432, "224.0.0.1", sbxerr.EgressAddress, "allow db.corp:5432,private"},
		{"pypi.org", 443, "10.9.9.9", "", "map pypi.org=10.9.9.9:8443"},
		{"pypi.org", 443, "9.9.9.1", sbxerr.EgressDenied, "map pypi.org=10.9.9.9:8443"},
		{"denied.test", 443, "10.1.1.1", sbxerr.EgressDenied, "deny 10.1.1.1"},
		{"bad.example.com", 443, "10.9.9.7", sbxerr.EgressDenied, "deny bad.example.com"},
	} {
		addr := netip.MustParseAddr(tc.addr)
		d := p.DecideResolved(tc.name, tc.port, addr)
		if d.Code != tc.code || d.Allowed != (tc.code == "") || d.Rule != tc.rule {
			t.Errorf("%s:%d at %s: %+v, want %q by %q", tc.name, tc.port, addr, d, tc.code, tc.rule)
		}
		if tc.rule == "map pypi.org=10.9.9.9:8443" && !d.Allowed {
			continue
		}
		checkRefusal(t, rich, d, func(p *Policy) Decision { return p.DecideResolved(tc.name, tc.port, addr) })
	}
}

func TestDecideAddress(t *testing.T) {
	p := mustCompile(t, rich)
	for _, tc := range []struct {
		addr  string
		port  uint16
		allow bool
		rule  string
	}{
		{"9.9.9.9", 53, true, "allow 9.9.9.0/24:53"},
		{"9.9.9.9", 443, false, "mode allow"},
		{"9.9.9.9", 0, false, "mode allow"},
		{"9.9.9.8", 53, false, "deny 9.9.9.8"},
		{"9.9.9.7", 53, false, "deny 9.9.9.7:53"},
		{"1.1.1.1", 443, false, "mode allow"},
		{"10.1.0.1", 5432, true, "allow 10.1.0.0/16:5432,private"},
		{"10.1.1.1", 5432, false, "deny 10.1.1.1"},
		{"127.0.0.1", 80, false, "mode allow"},
		{"169.254.169.254", 80, true, "allow 169.254.169.254:80,private"},
		{"169.254.169.254", 443, false, "mode allow"},
		{"100.100.1.1", 80, true, "allow 100.100.0.0/16:80,private"},
		{"100.100.100.200", 80, false, "mode allow"}, // metadata inside of an allowed range
		{"2a00::1", 443, false, "mode allow"},
		{"::1", 80, false, "mode allow"},
		{"::ffff:9.9.9.9", 53, false, "mode allow"},
		{"198.18.0.5", 443, false, "mode allow"},
		{"224.0.0.1", 443, false, "mode allow"},
	} {
		addr := netip.MustParseAddr(tc.addr)
		d := p.DecideAddress(addr, tc.port)
		if d.Allowed != tc.allow || d.Rule != tc.rule {
			t.Errorf("%s:%d: %+v, want %v by %q", addr, tc.port, d, tc.allow, tc.rule)
		}
		checkRefusal(t, rich, d, func(p *Policy) Decision { return p.DecideAddress(addr, tc.port) })
	}
}

// What has no way to the gateway is not allowed, and no rule is recommended for it.
func TestDecideAddressWithoutAWay(t *testing.T) {
	p := mustCompile(t, rich)
	for target, why := range map[string]string{
		"http://127.0.0.1/": "inside they are the sandbox's own", "127.9.9.9:5432": "inside they are the sandbox's own",
		"[2606:4700:4700::1111]:80": "literal IPv6", "http://[::1]/": "literal IPv6", "[fd00:ec2::254]:80": "literal IPv6",
	} {
		tgt, err := ParseTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Check(tgt); d.Allowed || d.Needs != "" || d.Remedy != "no rule can allow it" || !strings.Contains(d.Reason, why) {
			t.Errorf("%s: %+v, want a refusal that says %q", target, d, why)
		}
	}
	if d := p.DecideResolved("db.corp", 5432, netip.MustParseAddr("fd00:ec2::254")); d.Allowed || d.Needs != "" {
		t.Errorf("a name that leads to an address for which there is no rule: %+v", d)
	}
}

// A denial of where a mapped name leads needs no resolver to be known.
func TestCheckMapped(t *testing.T) {
	p := mustCompile(t, Spec{
		Mode: Allow, Allow: []string{"web.example"}, Deny: []string{"10.0.0.0/8", "192.168.0.1:8443"},
		Map: map[string]string{"denied.example": "10.9.8.7:80", "port.example": "192.168.0.1:8443", "other.example": "192.168.0.1:8080"},
	})
	for name, rule := range map[Name]string{
		"denied.example": "deny 10.0.0.0/8", "port.example": "deny 192.168.0.1:8443", "other.example": "map other.example=192.168.0.1:8080", "web.example": "allow web.example:80+443",
	} {
		if d := p.Check(Target{Name: name, Port: 80}); d.Rule != rule || d.Allowed == strings.HasPrefix(rule, "deny") {
			t.Errorf("%s: %+v, want %q", name, d, rule)
		}
	}
	if d := p.Check(Target{Name: "denied.example", Port: 22}); d.Rule != "mode allow" {
		t.Errorf("on a port that nothing allows: %+v", d)
	}
}

// What the DNS of the gateway never answers is not allowed by a wildcard or a mode.
func TestDecideNamesTooLongToAsk(t *testing.T) {
	long := Name(strings.Repeat("a.", 16) + "com")
	for _, s := range []Spec{{Mode: Allow, Allow: []string{"*.a.com"}}, {Mode: Open}} {
		p := mustCompile(t, s)
		for _, d := range []Decision{p.Decide(long, 443), p.DecideLookup(long)} {
			if d.Allowed || d.Rule != "name" || d.Needs != "" || !strings.Contains(d.Reason, "16 labels") {
				t.Errorf("%s: %+v", s.Mode, d)
			}
		}
		if d := p.Decide(long[2:], 443); !d.Allowed {
			t.Errorf("%s: %+v", s.Mode, d)
		}
	}
	if _, err := Compile(Spec{Mode: Allow, Map: map[string]string{string(long): "10.0.0.1"}}); err == nil || !strings.Contains(err.Error(), "16 labels") {
		t.Errorf("mapped: %v", err)
	}
	if d := mustCompile(t, Spec{Mode: Open, Deny: []string{string(long)}}).Decide(long, 443); d.Rule != "deny "+string(long) {
		t.Errorf("denied: %+v", d)
	}
}

func TestModes(t *testing.T) {
	open := Spec{Mode: Open, Allow: []string{"db.corp:5432,private", "9.9.9.9:22"}, Deny: []string{"*.evil.example", "*.com:25", "6.6.6.0/24"}}
	p := mustCompile(t, open)
	for target, want := range map[string]string{
		"a.example:9999": "", "www.example.co.uk:443": "", "github.io:443": "", "x.com:443": "", "db.corp:5432": "", "9.9.9.9:22": "",
		"x.evil.example:443": "deny *.evil.example", "x.com:25": "deny *.com:25",
		"localhost:80": "name", "x.localhost:80": "name", "co.uk:443": "mode open", "9.9.9.9:23": "mode open", "6.6.6.6:22": "deny 6.6.6.0/24",
	} {
		tgt, err := ParseTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Check(tgt); d.Allowed != (want == "") || want != "" && d.Rule != want {
			t.Errorf("open, %s: %+v, want %q", target, d, want)
		}
	}
	if d := p.DecideResolved("a.example", 443, netip.MustParseAddr("10.0.0.1")); d.Code != sbxerr.EgressAddress || d.Needs != "a.example:443,private" {
		t.Errorf("open, a private address: %+v", d)
	}
	if d := p.DecideResolved("a.example", 443, netip.MustParseAddr("6.6.6.6")); d.Rule != "deny 6.6.6.0/24" {
		t.Errorf("open, a denied address: %+v", d)
	}
	for name, p := range map[string]*Policy{"nil": nil, "zero": {}, "none": mustCompile(t, Spec{})} {
		d := p.Decide("example.com", 443)
		checkRefusal(t, Spec{}, d, func(p *Policy) Decision { return p.Decide("example.com", 443) })
		for _, d := range []Decision{d, p.DecideLookup("example.com"), p.DecideAddress(netip.MustParseAddr("9.9.9.9"), 443), p.DecideResolved("example.com", 443, netip.MustParseAddr("9.9.9.9"))} {
			if d.Allowed || d.Rule != "mode none" || !strings.Contains(d.Remedy, "--network allow") {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if p.Mode() != None || len(p.Prefixes()) != 0 {
			t.Errorf("%s: mode %q, %v", name, p.Mode(), p.Prefixes())
		}
	}
}

func TestDecideLookup(t *testing.T) {
	p := mustCompile(t, rich)
	for name, want := range map[Name]bool{
		"example.com": true, "api.example.com": true, "db.corp": true, "x.y.example.com": true, "pypi.org": true, "files.test": true, "a.corp.example": true,
		"bad.example.com": false, "half.example.com": false, "corp": false, "evil.test": false, "data.attacker.test": false, "corp.example": false, "": false,
	} {
		if d := p.DecideLookup(name); d.Allowed != want || !want && d.Rule == "" {
			t.Errorf("%q: %+v, want %v", name, d, want)
		}
	}
	open := mustCompile(t, Spec{Mode: Open, Deny: []string{"no.example", "part.example:443+80"}})
	for name, want := range map[Name]bool{"a.example": true, "no.example": false, "part.example": true, "localhost": false, "com": false} {
		if d := open.DecideLookup(name); d.Allowed != want {
			t.Errorf("open, %q: %+v, want %v", name, d, want)
		}
	}
}

// A refused lookup is about a name, whatever port is wanted: what it says is needed
// allows a web server on both.
func TestRefusedLookup(t *testing.T) {
	s := Spec{
		Mode: Allow, Deny: []string{"no.example", "half.example:443", "web.example:80+443", "db:5432"}, Allow: []string{"*.amazonaws.com:443"},
		Links: map[string]Link{"db": {Sandbox: "s", Port: 5432}},
	}
	p := mustCompile(t, s)
	for name, want := range map[Name]struct{ rule, reason, needs string }{
		"x.example":             {"mode allow", "x.example is allowed by no rule", "x.example"},
		"half.example":          {"mode allow", "half.example is allowed by no rule", "half.example"},
		"no.example":            {"deny no.example", "no.example is denied", ""},
		"web.example":           {"deny web.example:80+443", "web.example is denied", ""},
		"db":                    {"link db=s:5432", "db is refused: the link is for port 5432", ""},
		"com":                   {"mode allow", "com is allowed by no rule", "com,private"}, // a host of a site may be called so
		"co.uk":                 {"mode allow", "co.uk is allowed by no rule", ""},
		"evil.s3.amazonaws.com": {"mode allow", "evil.s3.amazonaws.com is allowed by no rule: *.amazonaws.com:443 is not about it, as anybody may have a name below the public suffix s3.amazonaws.com", "evil.s3.amazonaws.com"},
	} {
		d := p.DecideLookup(name)
		if d.Allowed || d.Rule != want.rule || d.Reason != want.reason || d.Needs != want.needs || want.needs != "" && d.Remedy != "allow it with --allow "+want.needs {
			t.Errorf("%s: %+v", name, d)
		}
		checkRefusal(t, s, d, func(p *Policy) Decision { return p.DecideLookup(name) })
	}
	for _, port := range []uint16{80, 443} {
		checkRefusal(t, s, p.DecideLookup("x.example"), func(p *Policy) Decision { return p.Decide("x.example", port) })
	}
	none := mustCompile(t, Spec{}).DecideLookup("x.example")
	if none.Remedy != "start the sandbox with --network allow --allow x.example" || none.Reason != "x.example is refused: nothing may be reached" {
		t.Errorf("mode none: %+v", none)
	}
}

func TestAirGapped(t *testing.T) {
	p := mustCompile(t, Spec{Mode: Allow, AirGapped: true, Allow: []string{"pypi.org:8080"}, Map: map[string]string{"pypi.org": "10.0.0.1"}})
	for target, want := range map[string]bool{"pypi.org:443": true, "pypi.org:8080": true, "pypi.org:22": false, "example.com:443": false, "10.0.0.1:443": false} {
		tgt, err := ParseTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		d := p.Check(tgt)
		if d.Allowed != want {
			t.Errorf("%s: %+v", target, d)
		}
		needs, remedy := "", "only the operator can let it be reached"
		if tgt.Name == "pypi.org" {
			needs, remedy = "pypi.org:22", "allow it with --allow pypi.org:22"
		}
		if !want && (d.Needs != needs || !strings.Contains(d.Remedy, remedy)) { // a rule that would be refused is none
			t.Errorf("%s: needs %q, %q", target, d.Needs, d.Remedy)
		}
	}
	mustCompile(t, Spec{AirGapped: true})
}

func TestPrefixes(t *testing.T) {
	got := fmt.Sprint(mustCompile(t, rich).Prefixes())
	if want := "[9.9.9.0/24 10.1.0.0/16 169.254.169.254/32 100.100.0.0/16]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzDecide: whatever the rules, nothing denied is allowed, no private address
// is reached without private, and a refusal's own remedy helps.
func FuzzDecide(f *testing.F) {
	f.Add("example.com:443 *.example.com", "bad.example.com", "bad.example.com", uint16(443), []byte{9, 9, 9, 9})
	f.Add("10.0.0.0/8:22,private", "10.0.0.1", "a.test", uint16(22), []byte{10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, allow, deny, host string, port uint16, ip []byte) {
		s := Spec{Mode: Allow, Allow: strings.Fields(allow), Deny: strings.Fields(deny)}
		p, err := Compile(s)
		name, nameErr := ParseName(host)
		addr, ok := netip.AddrFromSlice(ip)
		if err != nil || nameErr != nil || !ok {
			return
		}
		d := p.DecideResolved(name, port, addr)
		if p.Decide(name, port).Allowed { // else the address is not looked at
			checkRefusal(t, s, d, func(p *Policy) Decision { return p.DecideResolved(name, port, addr) })
		}
		alone := p.DecideAddress(addr, port)
		checkRefusal(t, s, alone, func(p *Policy) Decision { return p.DecideAddress(addr, port) })
		if (d.Allowed || alone.Allowed) && Classify(addr).Grade == Never {
			t.Fatalf("%s is reached: %+v %+v", addr, d, alone)
		}
		if d.Allowed && Classify(addr).Grade != Public && !strings.Contains(d.Rule, ",private") {
			t.Fatalf("%s is reached by %q", addr, d.Rule)
		}
		if d.Allowed && !p.DecideLookup(name).Allowed {
			t.Fatalf("%s may be connected to but not resolved", name)
		}
		s.Deny = append(s.Deny, string(name))
		if d := mustCompile(t, s).DecideResolved(name, port, addr); d.Allowed {
			t.Fatalf("a denied name is allowed: %+v", d)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	s := Spec{Mode: Allow}
	for i := range 1000 {
		s.Allow = append(s.Allow, fmt.Sprintf("h%d.example.com", i), fmt.Sprintf("*.w%d.example.com", i))
	}
	p := mustCompile(b, s)
	for b.Loop() {
		if !p.Decide("a.b.w999.example.com", 443).Allowed {
			b.Fatal("refused")
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	s := Spec{Mode: Allow}
	for i := range 100 {
		s.Allow = append(s.Allow, fmt.Sprintf("h%d.example.com:443+22", i))
	}
	for b.Loop() {
		mustCompile(b, s)
	}
}
